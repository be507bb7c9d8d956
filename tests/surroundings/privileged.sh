#!/bin/sh
# A program with privileges that its user has not (the set-user-ID bit) takes no file that the environment names: here the file of configuration.
set -eu
prefix=${WHIMBREL_TEST_PREFIX:-$ROOT/build}
[ "$(id -u)" = 0 ] && command -v setpriv > /dev/null || { echo "skipped: needs root and setpriv"; exit 77; }
folder=$(mktemp -d /tmp/whimbrel-privileged.XXXXXX)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cp "$prefix/bin/whimbrel" "$folder/plain"
cp "$prefix/bin/whimbrel" "$folder/set"
chmod 755 "$folder/plain"
chmod 4755 "$folder/set"
echo "eager_max = 77" > "$folder/conf"
chmod 644 "$folder/conf"

# The line of EAGER_MAX that the user nobody sees.
shown() {
    WHIMBREL_CONFIG=$folder/conf setpriv --reuid=65534 --regid=65534 --clear-groups "$folder/$1" info --params | grep "^WHIMBREL_EAGER_MAX ="
}

shown plain | grep -q "= 77 bytes" || { echo "the file of configuration is not read at all"; exit 1; }
if findmnt --noheadings --output OPTIONS --target "$folder" | grep -qw nosuid; then
    echo "skipped: /tmp is mounted without set-user-ID programs"
    exit 77
fi
own=$("$folder/plain" info --params | grep "^WHIMBREL_EAGER_MAX =")
[ "$(shown set)" = "$own" ] || { echo "a program with set-user-ID reads the file that the environment names: $(shown set)"; exit 1; }
