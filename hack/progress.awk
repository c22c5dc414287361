# Turns the output of `go build -v` (a line per compiled package) into one line of progress.
# Anything that is not a package path (an error) is passed through. Set -v what=NAME.
BEGIN { tty = (system("test -t 1") == 0) && (ENVIRON["CI"] == "") }
/^[A-Za-z0-9._~\/-]+$/ {
	n++
	if (tty) { printf "\r\033[K%s: %d packages compiled  %s", what, n, $0; fflush() }
	else if (n % 200 == 0) { printf "%s: %d packages compiled\n", what, n; fflush() }
	next
}
{ if (tty && n) printf "\r\033[K"; print; fflush() }
END {
	if (tty && n) printf "\r\033[K"
	printf "%s: %s\n", what, n ? n " packages compiled" : "up to date"
}
