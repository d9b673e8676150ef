#!/bin/sh
# The engines of the cluster tests, from Debian's packages; as root.
set -eu
missing=
for pair in sshd:openssh-server ip:iproute2 srun:slurm-wlm munged:munge pdsh:pdsh mpirun:openmpi-bin; do
    command -v "${pair%%:*}" >/dev/null || [ -x "/usr/sbin/${pair%%:*}" ] || missing="$missing ${pair##*:}"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Not installed here:$missing; tests that need them are skipped." >&2
    exit 0
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing
