"""What the campaign draws from: the modes a job runs in, the phases of train.py, the faults, and how each must end.

A fault has the row of docs/failures.md whose promise it tries. Ends are those of that table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mode:
    """A way to start RANKS ranks. shared: several ranks in a process; ddprun: ddprun watches them."""

    words: tuple[str, ...]
    ddprun: bool = True
    shared: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


MODES = {
    "processes": Mode(()),
    "procs": Mode(("--procs", "2"), shared=True),
    "one process": Mode(("--procs", "1"), shared=True),
    "debug": Mode(("--debug",), shared=True),
    "mpi": Mode(("--mpi",)),
    "mpi transport": Mode(("--mpi",), environment={"DDPGRAD_TRANSPORT": "mpi"}),
    "hosts": Mode(("--hosts", "localhost:4")),
    "mpirun": Mode((), ddprun=False),
    "by hand": Mode((), ddprun=False),
}
WATCHED = tuple(name for name, mode in MODES.items() if mode.ddprun and name != "debug")
APART = tuple(name for name, mode in MODES.items() if not mode.shared)

STEPS = ("forward", "backward", "mid-bucket", "optimizer", "step", "barrier", "objects")
BEFORE = ("import", "init")
BEGUN = ("meeting", "model", *STEPS)
ANY = (*BEFORE, *BEGUN)
LAST = ("destroy", "shutdown")
SAVING = ("write", "save")  # of rank 0: a file is put on the disk; the checkpoint becomes visible


@dataclass(frozen=True)
class End:
    """How a job ends. code: of ddprun; reason: in its headline, which names the culprit (None: another rank may be
    named); text: somewhere in its output; WHO is the culprit's number, PLACE the line of the fault."""

    code: int
    reason: str | None = None
    text: str = ""


FINE = End(0)
MISSED = End(1, None, r"ranks? WHO.* (failed \(ended while others wait to meet it|has finished its program)")


@dataclass(frozen=True)
class Fault:
    """An action in train.py, and what must come of it.

    who: 'one' rank, rank '0', or 'all' of them. ends: by phase, where it is not `end`. alone: without ddprun. mends: a restart gives the bits of
    an undisturbed run. limit: nothing but a limit of time ends it. sent: the signal that the launcher gets when the action
    has begun. resumes: what a second run, without a fault, must give the undisturbed bits after. setup: words of the
    surroundings (campaign_runs.py); prepared: there are checkpoints of the steps before.
    """

    row: str
    action: str
    end: End
    phases: tuple[str, ...] = ANY
    modes: tuple[str, ...] = tuple(MODES)
    who: str = "one"
    ends: Mapping[str, End] = field(default_factory=dict)
    alone: End | None = None
    mends: bool = True
    limit: bool = False
    sent: tuple[str, ...] = ()
    resumes: bool = False
    setup: str = ""
    prepared: bool | None = None
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def killed(name: str) -> End:
    return End(1, f"killed by {name}|ended before its script was finished")


def differs(text: str = "") -> End:
    return End(4, "exit code 1", text)


EXITED = End(1, "exit code 0", r"rank WHO called os\._exit\(0\) before its script was finished")
STOPPED = End(3, "stalled")
# What a rank does until the signal to the launcher has come to it.
UNTIL_ASKED = """
import ddpgrad.launcher.preemption as p
began = time.monotonic()
while not p.requested() and time.monotonic() < began + 100: time.sleep(0.01)
"""
ASLEEP = "time.sleep(1000)"
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
LOOP = "[None for _ in iter(int, 1)]"
NO_SPACE = "import errno; raise OSError(errno.{0}, os.strerror(errno.{0}))"
NEWEST = "import pathlib; files = sorted(max(pathlib.Path('checkpoints').glob('step_*')).iterdir()); file = {}; data = bytearray(file.read_bytes()); "
PREEMPTED = End(75, text=r"ddprun: preempted after step \d+")

FAULTS = {
    # Deaths.
    "exception": Fault("exception in a rank", "raise ValueError('boom')", End(1, "exit code 1", "PLACE(.|\n)*ValueError: boom")),
    "no memory": Fault("exception in a rank", "raise MemoryError('no room')", End(1, "exit code 1", "MemoryError: no room")),
    "exit 1": Fault("exception in a rank", "sys.exit(1)", End(1, "exit code 1", r"sys.exit\(1\) was called at PLACE"), alone=End(1, None, "ranks? WHO")),
    "SIGKILL": Fault("SIGKILL, out of memory", "os.kill(os.getpid(), signal.SIGKILL)", killed("SIGKILL"), (*ANY, *LAST, *SAVING), (*APART, "procs", "one process")),
    "killed again": Fault("ranks killed again and again", "os.kill(os.getpid(), signal.SIGKILL)", killed("SIGKILL"), ("step", "mid-bucket"), WATCHED),
    "SIGTERM": Fault("SIGKILL, out of memory", "signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", killed("SIGTERM"), (*BEGUN, *LAST), APART),
    "abort": Fault("SIGKILL, out of memory", "os.abort()", End(1, "killed by SIGABRT|ended before", "PLACE"), ANY, WATCHED),
    "_exit 0": Fault("`os._exit(0)`", "os._exit(0)", EXITED, (*ANY, *SAVING)),
    "_exit 1": Fault("`os._exit(0)`", "os._exit(1)", End(1, "exit code 1", r"rank WHO called os\._exit\(1\)"), (*ANY, *SAVING)),
    "exit 0": Fault("a rank ends early and well", "sys.exit(0)", End(1, None, r"rank WHO has finished its program|ranks? WHO"), (*ANY, "destroy"), ends={"import": MISSED, "init": MISSED, "destroy": FINE}),
    "exit 0 before the meeting": Fault("a rank ends before it has met", "sys.exit(0)", MISSED, BEFORE),
    # Stalls.
    "stopped": Fault("SIGSTOP, held interpreter lock", STOP, STOPPED, (*ANY, *SAVING), limit=True, modes=(*WATCHED, "mpirun", "by hand")),
    "endless loop": Fault("SIGSTOP, held interpreter lock", LOOP, STOPPED, BEGUN, limit=True, modes=(*WATCHED, "mpirun", "by hand")),
    "holds the lock": Fault("SIGSTOP, held interpreter lock", "sum(range(10**12))", STOPPED, BEGUN, limit=True, modes=WATCHED),
    "late": Fault("a rank does not come to a collective", ASLEEP, STOPPED, BEGUN, limit=True, modes=(*WATCHED, "mpirun", "by hand")),
    "goes on at last": Fault("compiling or importing for long", "time.sleep(PATIENCE / 2)", FINE, limit=True),
    "barrier with a limit": Fault("a rank does not come to a collective", "from datetime import timedelta\nif ME == 'WHO': time.sleep(1000)\ndist.monitored_barrier(timeout=timedelta(seconds=PATIENCE))", End(3, None, "rank WHO|ranks WHO"), ("step",), ("processes", "mpi", "hosts"), "all", mends=False),
    # Disagreements.
    "other op": Fault("collectives swapped", "dist.all_reduce(torch.ones(3))", differs(), BEGUN, mends=False),
    "other shape": Fault("collectives swapped", "dist.all_reduce(torch.ones(3 + (ME == 'WHO')))", differs("shape"), BEGUN, who="all", mends=False),
    "other dtype": Fault("collectives swapped", "dist.all_reduce(torch.ones(3, dtype=torch.float64 if ME == 'WHO' else torch.float32))", differs("dtype"), BEGUN, who="all", mends=False),
    "swapped": Fault("collectives swapped", "a, b = torch.ones(3), torch.ones(4)\nif ME == 'WHO': a, b = b, a\ndist.all_reduce(a)\ndist.all_reduce(b)", differs(), BEGUN, who="all", mends=False),
    "other model": Fault("another model, DDP option", "width = 65", differs("the models differ"), ("model",), mends=False),
    "other option": Fault("another model, DDP option", "ddp_options = {'find_unused_parameters': True}", differs("find_unused_parameters"), ("model",), mends=False),
    "other list": Fault("collectives swapped", "dist.broadcast_object_list([1] * (1 + (ME == 'WHO')))", differs(), BEGUN, who="all", mends=False),
    # Numbers.
    "NaN": Fault("NaN on one rank", "poison = float('nan')", End(1, "exit code 1", "(?s)NaN.* of rank WHO"), ("step", "forward"), mends=False),
    "flipped bit": Fault("a bit flipped in one replica", "model[2].weight.detach().numpy().reshape(-1).view(np.uint32)[77] ^= np.uint32(1 << 22)", differs("the replicas have drifted apart"), ("step",), mends=False),
    "other learning rate": Fault("a bit flipped in one replica", "lr = 0.02", differs("the replicas have drifted apart"), ("model",), mends=False, prepared=False),
    # Files.
    "full disk": Fault("full disk, I/O error", NO_SPACE.format("ENOSPC"), End(5, None, "No space left on device"), SAVING, who="0", mends=False, resumes=True),
    "I/O error": Fault("full disk, I/O error", NO_SPACE.format("EIO"), End(5, None, "Input/output error"), SAVING, who="0", mends=False, resumes=True),
    "read-only folder": Fault("full disk, I/O error", NO_SPACE.format("EROFS"), End(5, None, "Read-only file system"), SAVING, who="0", mends=False, resumes=True),
    "killed in a save": Fault("power lost, or SIGKILL", "os.kill(os.getpid(), signal.SIGKILL)", killed("SIGKILL"), SAVING, APART, who="0", resumes=True),
    "cut file": Fault("damaged checkpoint", NEWEST.format("files[len(files) // 2]") + "file.write_bytes(data[:len(data) // 2])", End(5, None, "is damaged.*is whole"), ("init",), prepared=True, mends=False),
    "flipped byte": Fault("damaged checkpoint", NEWEST.format("files[0]") + "data[len(data) // 3] ^= 1; file.write_bytes(data)", End(5, None, "is damaged.*is whole"), ("init",), prepared=True, mends=False),
    "another model's": Fault("damaged checkpoint", "width = 65", End(5, None, "checkpoints(.|\n)*weight"), ("model",), who="all", prepared=True, mends=False),
    "fails to load": Fault("exception in a rank", "raise ValueError('boom')", End(5, None, "rank WHO: checkpoint.*does not fit.*boom"), ("load",), prepared=True, mends=False),
    "hostile file": Fault("hostile checkpoint", "open('evil.pt', 'wb').write(b'PK\\x03\\x04' + bytes(range(256)) * 9); torch.load('evil.pt')", End(5, "exit code 1", "evil.pt"), ("step", "model"), mends=False),
    # Signals from outside.
    **{f"preempted by {name}": Fault("SIGTERM, SIGINT, SIGUSR1", UNTIL_ASKED, PREEMPTED, (*STEPS, "save"), WATCHED, sent=(name,), resumes=True, mends=False) for name in ("SIGTERM", "SIGINT", "SIGUSR1")},
    "SIGTERM, nothing saved": Fault("the same in a program that saves nothing", ASLEEP, End(128 + 15), BEFORE, WATCHED, sent=("SIGTERM",), mends=False),
    "SIGUSR1, nothing saved": Fault("the same in a program that saves nothing", ASLEEP, End(128 + 10), BEFORE, WATCHED, sent=("SIGUSR1",), mends=False),
    "SIGINT twice": Fault("SIGTERM, SIGINT, SIGUSR1", ASLEEP, End(128 + 2), STEPS, WATCHED, sent=("SIGINT", "SIGINT"), mends=False),
    "launcher killed": Fault("the launcher is killed", ASLEEP, End(-9), (*ANY, *SAVING), WATCHED, sent=("SIGKILL",), resumes=True, mends=False),
    # Workers of a loader.
    "worker killed": Fault("a loader's worker", "os.kill(os.getpid(), signal.SIGKILL)", End(1, "exit code 1", "DataLoader worker(.|\n)*SIGKILL(.|\n)*sample"), ("worker",)),
    "worker raises": Fault("a loader's worker", "raise ValueError('a broken picture')", End(1, "exit code 1", "DataLoader worker(.|\n)*sample(.|\n)*a broken picture"), ("worker",)),
    "worker exits": Fault("a loader's worker", "os._exit(0)", End(1, "exit code 1", "DataLoader worker"), ("worker",)),
    "worker stalls": Fault("a loader's worker", ASLEEP, End(3, "stalled", "waits for DataLoader worker 0.* is reading sample"), ("worker",), WATCHED, limit=True),
    "worker stopped": Fault("a loader's worker", STOP, End(3, "stalled", "waits for DataLoader worker 0.* is reading sample"), ("worker",), WATCHED, limit=True),
    # The host.
    "little shared memory": Fault("`/dev/shm` of 1 MB", "", End(1, None, r"not enough shared memory in /dev/shm: \d+ bytes wanted, \d+ available"), ("import",), ("processes", "procs"), "all", setup="small memory", mends=False),
    "much output": Fault("100 MB of output", "sys.stdout.buffer.write((b'\\xff' * 99 + b'\\n') * 100_000); sys.stdout.flush()", FINE, ("step",), setup="whole lines"),
    "taken port": Fault("port taken, two jobs", "", FINE, ("step",), WATCHED, setup="taken port"),
    "groups": Fault("exception in a rank", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\nfor _ in range(150): dist.destroy_process_group(dist.new_group())", FINE, ("step",), who="all"),
}  # fmt: skip

# Deaths that may come together with another one, or in the attempt after.
TOGETHER = ("exception", "SIGKILL", "_exit 0", "_exit 1", "exit 1")

# Those that say how many steps the rank had finished.
TELLING = ("exception", "no memory", "exit 1")

# Where rank 0 is what the others are compared with.
AGAINST_RANK_0 = (
    "other op", "other shape", "other dtype", "swapped", "other list", "other model", "other option",
    "other learning rate", "flipped bit",
)  # fmt: skip

# Rows that one run of train.py cannot show; a draw of them runs one of these tests, with its own judgement.
TESTS = {
    "a host of `--hosts` or `--nnodes` is reset": "launcher/test_nodes.py::test_a_job_goes_on_with_the_same_bits_without_a_node_that_is_lost",
    "a host is switched off": "launcher/test_hosts.py::test_a_node_that_is_cut_off_ends_and_the_others_go_on",
    "the remaining hosts have too few slots": "launcher/test_hosts.py::test_a_job_ends_when_the_hosts_that_remain_have_too_few_places",
    "the first node of `--nnodes` is lost": "launcher/test_nodes.py::test_no_node_outlives_another",
    "a message that nobody receives": "launcher/test_faults.py::test_messages_that_nobody_receives_are_told_of",
    "a collective fails in a thread": "launcher/test_faults.py::test_threads_of_a_rank_use_groups_of_their_own",
    "the disk of `--log-dir` fills up": "faults/test_surroundings.py::test_a_log_folder_on_a_disk_that_fills_up",
    "a rank ten times as slow": "faults/test_slow_rank.py::test_a_slow_rank_is_named_and_left_alone",
    "two jobs save into one folder": "faults/test_surroundings.py::test_a_second_job_that_saves_into_the_same_folder_is_refused",
    "nobody reads the output": "faults/test_streams.py::test_a_rank_that_fails_while_nobody_reads_ends_the_others_all_the_same",
    "two jobs write to one `--log-dir`": "launcher/test_logs.py::test_two_jobs_do_not_share_a_folder",
    "a process that does not end after its script": "launcher/test_watchdog.py::test_a_process_that_does_not_end_after_its_script_is_named",
    "a fork of a rank that calls a collective": "launcher/test_faults.py::test_a_fork_of_a_rank_takes_no_part_in_its_place",
    "other programs on the control socket": "faults/test_surroundings.py::test_garbage_and_slow_bytes_on_every_open_socket_of_a_job",
}  # fmt: skip
