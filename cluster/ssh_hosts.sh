#!/bin/bash
# Run a ddpgrad script on hosts that are reached by SSH:
#
#   cluster/ssh_hosts.sh hosts.txt train.py --epochs 3
#
# hosts.txt has one host a line with its number of ranks, the first being where this runs: "node1:4".
# MPICH and Open MPI write that file differently; this script writes theirs.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: $0 HOSTS script.py [args ...]    (HOSTS: a file of lines 'host:ranks')" >&2
    exit 2
fi
hosts=$1
shift

python=$(command -v python)
ranks=0
list=$(mktemp)
trap 'rm -f "$list"' EXIT
version=$(mpiexec --version 2>&1)
while IFS=': ' read -r host count || [ -n "$host" ]; do
    if [ -z "$host" ] || [ "${host:0:1}" = "#" ]; then continue; fi
    if ! [[ ${count:=1} =~ ^[1-9][0-9]*$ ]]; then
        echo "$hosts: '$host:$count' is not 'host:ranks'" >&2
        exit 2
    fi
    case $version in
    *"Open MPI"*) echo "$host slots=$count" >>"$list" ;;
    *) echo "$host:$count" >>"$list" ;;
    esac
    ranks=$((ranks + count))
done <"$hosts"

threads=${OMP_NUM_THREADS:-1}
export OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-$threads}
export MKL_NUM_THREADS=${MKL_NUM_THREADS:-$threads} NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-$threads}

case $version in
*"Open MPI"*)
    # Open MPI hands on only the variables that are named, and binds each rank to one core, on which
    # a rank and its communication thread would starve each other.
    [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpiexec --hostfile "$list" --bind-to none -n "$ranks" \
        -x OMP_NUM_THREADS -x OPENBLAS_NUM_THREADS -x MKL_NUM_THREADS -x NUMBA_NUM_THREADS "$python" -u "$@"
    ;;
*HYDRA* | *"Intel(R) MPI"*)
    mpiexec -f "$list" -launcher ssh -n "$ranks" "$python" -u "$@"
    ;;
*)
    echo "$(command -v mpiexec) is neither MPICH's nor Open MPI's: ${version%%$'\n'*}" >&2
    exit 2
    ;;
esac
