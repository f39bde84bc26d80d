#!/bin/bash
# A Slurm cluster of this one host, to try things on: start or stop it, as root.
#
#   apt-get install slurm-wlm munge && cluster/slurm_box.sh start && salloc -n 2 ddprun train.py
#
# It writes /etc/slurm/slurm.conf, unless that is of another cluster.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"
box=${SLURM_BOX:-/var/tmp/slurm-box}
case ${1:-} in
start) ;;
stop)
    for name in slurmd slurmctld munged; do
        if [ -f "$box/$name.pid" ]; then kill "$(cat "$box/$name.pid")" && rm -f "$box/$name.pid"; fi
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
mkdir -p "$box/state" "$box/spool" /etc/slurm /run/munge
[ -f /etc/munge/munge.key ] || mungekey --create
chown -R munge: /etc/munge /run/munge
if ! munge --no-input >/dev/null 2>&1; then
    su munge -s /bin/sh -c /usr/sbin/munged
    cp /run/munge/munged.pid "$box/munged.pid"
fi
name=$(hostname -s)
cat >$conf <<END
ClusterName=box
SlurmctldHost=$name
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$box/state
SlurmdSpoolDir=$box/spool
SlurmctldLogFile=$box/slurmctld.log
SlurmdLogFile=$box/slurmd.log
SlurmctldPidFile=$box/slurmctld.pid
SlurmdPidFile=$box/slurmd.pid
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=$name CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
slurmctld -c
slurmd
for _ in $(seq 50); do
    if sinfo --noheader --format=%t | grep -q idle; then exit; fi
    sleep 0.2
done
echo "the host does not become idle: see $box/*.log" >&2
exit 1
