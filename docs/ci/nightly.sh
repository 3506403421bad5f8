#!/bin/sh
# Scans a snapshot, and leaves etcdfix.json (everything) and etcdfix.xml (JUnit) in this folder.
#
#   sh nightly.sh SNAPSHOT ENCRYPTION-CONFIG [BASELINE]
#
# Ends with the exit code of the scan: 0 nothing wrong, 1 findings that BASELINE does not know, 3 not everything could be
# decided; anything else says that nothing was checked. Only 0 is a success: 3 is not known to be well, and 2 or 5 have
# looked at nothing.
set -u
if [ $# -lt 2 ]; then
  echo "usage: sh nightly.sh SNAPSHOT ENCRYPTION-CONFIG [BASELINE]" >&2
  exit 2
fi
snapshot=$1
config=$2
baseline=${3:-}
# Last night's report is replaced, so it is no baseline; nor should it be one (docs/ci.md).
if [ etcdfix.json -ef "$baseline" ]; then
  echo "etcdfix: the baseline may not be etcdfix.json, which this writes: copy a report that somebody has looked at" >&2
  exit 2
fi

rm -f etcdfix.json etcdfix.xml
code=0
etcdfix scan --snapshot "$snapshot" --encryption-config "$config" ${baseline:+--baseline "$baseline"} \
  -o json --output-file etcdfix.json || code=$?

# Of 0, 1 and 3 there is a whole report. Of an incomplete one, render ends with 3 and has written it all the same.
written=0
case $code in
  0 | 1 | 3)
    etcdfix report render etcdfix.json
    etcdfix report render etcdfix.json -o junit --output-file etcdfix.xml || [ -s etcdfix.xml ] || written=2
    ;;
esac

case $code in
  0) said="everything can be read, or is known" ;;
  1) said="FINDINGS: values cannot be read, or are inconsistent, that the baseline does not know" ;;
  3) said="INCOMPLETE: something could not be decided (a KMS plugin that is away?): run it again before you trust it" ;;
  *) said="NOTHING WAS CHECKED: see above" ;;
esac
echo "etcdfix: $said (exit code $code)"
if [ "$written" != 0 ]; then
  echo "etcdfix: etcdfix.xml could not be written; etcdfix.json has everything"
  [ "$code" != 0 ] || code=$written
fi
exit "$code"
