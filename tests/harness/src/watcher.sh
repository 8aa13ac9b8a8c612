# Ends every component once this process's stdin closes, which happens when its
# owner asks for it and also when its owner dies in whatever way.
# $1 is the directory of one control plane. Each component writes its pid into
# $1/pids/<name> before it becomes the program, and has $1 in its command line,
# so that a pid taken over by some other process is never signalled.
dir=$1
trap '' INT TERM HUP
while read -r _; do :; done

live() {
    for file in "$dir"/pids/*; do
        [ -r "$file" ] || continue
        read -r pid <"$file" || continue
        if [ -r "/proc/$pid/cmdline" ]; then
            line=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)
        else
            line=$(ps -o command= -p "$pid" 2>/dev/null)
        fi
        case $line in *"$dir"*) echo "$pid" ;; esac
    done
}

tries=0
while [ "$tries" -lt 60 ]; do
    pids=$(live)
    # One that was being started when the owner died writes its pid late.
    [ -n "$pids" ] || [ "$tries" -lt 2 ] || break
    signal=TERM
    [ "$tries" -lt 20 ] || signal=KILL
    for pid in $pids; do kill -s "$signal" "$pid" 2>/dev/null; done
    sleep 0.1
    tries=$((tries + 1))
done
rm -rf "$dir"
