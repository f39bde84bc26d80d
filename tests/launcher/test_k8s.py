"""cluster/k8s: names that refer to one another, numbers that have to agree, and command lines that ddprun takes."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpgrad.launcher.cli import ddprun
from ddpgrad.launcher.job import attempt

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

K8S = Path(__file__).parents[2] / "cluster" / "k8s"
CONTAINERS = K8S.parent / "containers"
FOLDERS = sorted(path.parent for path in K8S.rglob("kustomization.yaml"))
# The versions that README.md names.
VERSIONS = {
    "PersistentVolumeClaim": "v1", "Service": "v1", "Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2",
    "MPIJob": "kubeflow.org/v2beta1", "PyTorchJob": "kubeflow.org/v1",
}  # fmt: skip


def resources(folder: Path) -> list[dict[str, Any]]:
    """All that the kustomization in `folder` consists of, before patches."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Kustomization"
    found: list[dict[str, Any]] = []
    for name in kustomization["resources"]:
        path = folder / name
        found += resources(path.resolve()) if path.is_dir() else yaml.safe_load_all(path.read_text())
    return found


def pods(tree: Any) -> Iterator[dict[str, Any]]:
    """The templates of pods anywhere in `tree`."""
    if isinstance(tree, dict):
        if "containers" in tree.get("spec", {}):
            yield tree
        tree = list(tree.values())
    for value in tree if isinstance(tree, list) else ():
        yield from pods(value)


def jobs() -> list[Any]:
    found = []
    for folder in FOLDERS:
        for resource in resources(folder):
            for index, pod in enumerate(pods(resource)):
                found.append(
                    pytest.param(resource, pod, id=f"{folder.relative_to(K8S)}-{resource['kind']}-{index}")
                )
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(K8S)))
def test_kinds_and_claims(folder):
    all_of_it = resources(folder)
    assert {resource["kind"]: resource["apiVersion"] for resource in all_of_it}.items() <= VERSIONS.items()
    claims = [r["metadata"]["name"] for r in all_of_it if r["kind"] == "PersistentVolumeClaim"]
    volumes = [volume for pod in pods(all_of_it) for volume in pod["spec"]["volumes"]]
    asked = {v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v}
    assert asked <= set(claims) and len(claims) == 1
    if shutil.which("kubectl"):
        made = subprocess.run(
            ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=600
        )
        assert made.returncode == 0, made.stderr
        assert len(list(yaml.safe_load_all(made.stdout))) == len(all_of_it)


@pytest.mark.parametrize(("resource", "pod"), jobs())
def test_a_pod_has_what_its_ranks_need(resource, pod):
    spec = pod["spec"]
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in spec["volumes"]}
    args = container["args"]
    ranks_here = resource["kind"] != "PyTorchJob" and "--hostfile=/etc/mpi/hostfile" not in args
    assert mounts["runs"] == "/runs" and ("/dev/shm" in mounts.values()) == ranks_here
    # Time for the ranks to save, and to be ended.
    assert spec["terminationGracePeriodSeconds"] >= attempt._SIGNAL_GRACE_S + 20
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
    name, _, target = container["image"].partition(":")
    assert name == "ddpgrad" and f" AS {target}\n" in (CONTAINERS / "Dockerfile").read_text()
    assert (
        spec["securityContext"]["runAsUser"] == 1000
        and "USER 1000" in (CONTAINERS / "Dockerfile").read_text()
    )
    if resource["kind"] == "PyTorchJob":
        assert container["name"] == "pytorch"
    if "/usr/sbin/sshd" in args:
        assert f"Port {container['ports'][0]['containerPort']}\n" in (CONTAINERS / "sshd_config").read_text()
        assert (
            args[-1].endswith("/sshd_config") and f" {args[-1]}\n" in (CONTAINERS / "Dockerfile").read_text()
        )


@pytest.mark.parametrize(
    ("resource", "pod"), [p for p in jobs() if p.values[1]["spec"]["containers"][0]["name"] == "ddprun"]
)
def test_ddprun_takes_the_command_line(resource, pod, tmp_path):
    container = pod["spec"]["containers"][0]
    variables = {variable["name"] for variable in container.get("env", ())}
    assert container["args"][0] == "ddprun"
    line = "\n".join(container["args"][1:])
    assert set(re.findall(r"\$\((\w+)\)", line)) <= variables
    (tmp_path / "hosts").write_text("ddpgrad-worker-0.ddpgrad:4\nddpgrad-worker-1.ddpgrad:4\n")
    line = re.sub(r"\$\(\w+\)", "0", line).replace("/etc/mpi/hostfile", str(tmp_path / "hosts"))
    plan = ddprun.parse(line.split("\n"))
    job = resource["spec"]
    if resource["kind"] == "MPIJob":
        workers = job["mpiReplicaSpecs"]["Worker"]["replicas"]
        assert plan.procs == workers * job["slotsPerWorker"] and job["mpiImplementation"] == "MPICH"
        return
    name, service = resource["metadata"]["name"], pod["spec"].get("subdomain")
    if resource["kind"] == "JobSet":
        (replicated,) = job["replicatedJobs"]
        name, service = f"{name}-{replicated['name']}-0", job["network"]["subdomain"]
        job = replicated["template"]["spec"]
    assert job["completions"] == job["parallelism"] == plan.nnodes
    assert (plan.address, plan.port) == (f"{name}-0.{service}", container["ports"][0]["containerPort"])
    policy = [rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert {codes["containerName"] for codes in policy} == {container["name"]}
    assert 75 in policy[0]["values"]


def test_the_service_finds_the_pods_of_the_job():
    found = {resource["kind"]: resource for resource in resources(K8S / "base")}
    template, service = found["Job"]["spec"]["template"], found["Service"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["subdomain"] == service["metadata"]["name"]


# What custom resources have around pods, by the definitions in their repositories: kubeflow/mpi-operator
# (pkg/apis/kubeflow/v2beta1), kubernetes-sigs/jobset (hack/python-sdk/swagger.json), kubeflow/training-operator.
KNOWN = {
    "MPIJob": {
        "mpiImplementation": str, "slotsPerWorker": int, "sshAuthMountPath": str, "launcherCreationPolicy": str,
        "runLauncherAsWorker": bool, "runPolicy": dict, "mpiReplicaSpecs": dict,
    },
    "PyTorchJob": {"nprocPerNode": str, "runPolicy": dict, "elasticPolicy": dict, "pytorchReplicaSpecs": dict},
    "JobSet": {
        "network": dict, "failurePolicy": dict, "successPolicy": dict, "replicatedJobs": list, "suspend": bool,
        "coordinator": dict, "managedBy": str, "ttlSecondsAfterFinished": int, "startupPolicy": dict,
    },
    "runPolicy": {
        "cleanPodPolicy": str, "backoffLimit": int, "activeDeadlineSeconds": int, "ttlSecondsAfterFinished": int,
        "schedulingPolicy": dict, "suspend": bool, "managedBy": str,
    },
    "replica": {"replicas": int, "restartPolicy": str, "template": dict},
    "replicatedJob": {"name": str, "replicas": int, "template": dict, "dependsOn": list, "groupName": str},
    "failurePolicy": {"maxRestarts": int, "rules": list, "restartStrategy": str},
    "rule": {
        "name": str, "action": str, "onJobFailureReasons": list, "onJobFailureMessagePatterns": list,
        "targetReplicatedJobs": list,
    },
    "network": {"enableDNSHostnames": bool, "subdomain": str, "publishNotReadyAddresses": bool},
}  # fmt: skip


def known(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """`given`, which has fields of `kind` only, each of its type."""
    assert {name: type(value) for name, value in given.items()}.items() <= KNOWN[kind].items(), kind
    return given


def parts(resource: dict[str, Any]) -> list[dict[str, Any]]:
    """The resource as Kubernetes's own: a custom one is what it makes of its templates, each a Pod or a Job."""
    kind, spec = resource["kind"], resource["spec"]
    if kind not in KNOWN:
        return [resource]
    known(kind, spec)
    named = {"metadata": {"name": "made"}}
    if kind == "JobSet":
        known("network", spec["network"])
        for rule in known("failurePolicy", spec["failurePolicy"])["rules"]:
            known("rule", rule)
        jobs = [known("replicatedJob", job)["template"] for job in spec["replicatedJobs"]]
        return [{"apiVersion": "batch/v1", "kind": "Job", **named, **job} for job in jobs]
    known("runPolicy", spec["runPolicy"])
    replicas = spec["mpiReplicaSpecs" if kind == "MPIJob" else "pytorchReplicaSpecs"].values()
    templates = [known("replica", replica)["template"] for replica in replicas]
    return [{"apiVersion": "v1", "kind": "Pod", **named, **template} for template in templates]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(K8S)))
def test_the_schemas_that_kubernetes_publishes(folder):
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for resource in resources(folder):
        for part in parts(resource):
            kubernetes_validate.validate(part, "1.31", strict=True)
