#!/bin/bash
# A Slurm cluster of this one host, to try things on: start or stop it, as root.
#
#   apt-get install slurm-wlm munge && cluster/slurm_box.sh start && salloc -n 2 ddprun train.py
#
# It has SLURM_BOX_NODES nodes (two by default), each with a slurmd of its own. It writes /etc/slurm/slurm.conf, unless
# that is of another cluster.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"
box=${SLURM_BOX:-/var/tmp/slurm-box}
case ${1:-} in
start) ;;
stop)
    for file in "$box"/*.pid; do
        if [ -f "$file" ]; then kill "$(cat "$file")" && rm -f "$file"; fi
    done
    exit
    ;;
*)
    echo "usage: $0 start|stop" >&2
    exit 2
    ;;
esac
conf=/etc/slurm/slurm.conf
if [ -e $conf ] && ! grep -q '^ClusterName=box$' $conf; then
    echo "$conf is of another cluster" >&2
    exit 1
fi
mkdir -p "$box/state" /etc/slurm /run/munge
[ -f /etc/munge/munge.key ] || mungekey --create
chown -R munge: /etc/munge /run/munge
if ! munge --no-input >/dev/null 2>&1; then
    su munge -s /bin/sh -c /usr/sbin/munged
    cp /run/munge/munged.pid "$box/munged.pid"
fi
name=$(hostname -s)
nodes=${SLURM_BOX_NODES:-2}
# A job that is put back into the queue waits there until its credential has expired.
cat >$conf <<END
ClusterName=box
SlurmctldHost=$name
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$box/state
SlurmdSpoolDir=$box/spool-%n
SlurmctldLogFile=$box/slurmctld.log
SlurmdLogFile=$box/slurmd-%n.log
SlurmctldPidFile=$box/slurmctld.pid
SlurmdPidFile=$box/slurmd-%n.pid
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=box[1-$nodes] NodeHostname=$name NodeAddr=127.0.0.1 Port=[17001-$((17000 + nodes))] CPUs=8 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=preempt_send_user_signal
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE GraceTime=60 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 MaxTime=INFINITE PreemptMode=OFF State=UP
END
slurmctld -c
for node in $(seq "$nodes"); do slurmd -N "box$node"; done
for _ in $(seq 50); do
    if sinfo --noheader --format="%D %t" | grep -q "^$nodes idle"; then exit; fi
    sleep 0.2
done
echo "the nodes do not become idle: see $box/*.log" >&2
exit 1
