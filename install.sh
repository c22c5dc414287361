#!/bin/sh
# Installs dovetail, the command line of Dovetail. Read it first if you like; it is short.
#
#   curl -fsSL https://github.com/dovetail-k8s/dovetail/releases/latest/download/install.sh | sh
#
# install.sh --help has the options.
set -eu

usage() {
	cat <<'EOF'
Installs dovetail from its releases. It compares checksums before it writes anything.

Usage: install.sh [options]

  --version VERSION  a version, such as v0.1.0 (default: the latest release; DOVETAIL_VERSION)
  --dir DIR          directory of the programs (default: /usr/local/bin if it can be written, else ~/.local/bin; DOVETAIL_DIR)
  --lab              install dovetail-lab, too: a Kubernetes control plane and a simulator of AWS on this computer
  --plugin           install dovetail as the kubectl plugin "kubectl dovetail", too
  --from PLACE       an address or a directory with the files of one release, for computers without access to GitHub
EOF
}

fail() {
	echo "install.sh: $1" >&2
	exit 1
}

# fetch writes a file of the release into $temp.
fetch() {
	case $from in
	*://*)
		if command -v curl >/dev/null; then
			curl -fsSL --retry 3 -o "$temp/$1" "$from/$1"
		elif command -v wget >/dev/null; then
			wget -q -O "$temp/$1" "$from/$1"
		else
			fail "neither curl nor wget is installed"
		fi
		;;
	*) cp "$from/$1" "$temp/$1" ;;
	esac || fail "$from/$1 cannot be read"
}

# sum prints the SHA-256 of a file.
sum() {
	if command -v sha256sum >/dev/null; then
		sha256sum "$1"
	elif command -v shasum >/dev/null; then
		shasum -a 256 "$1"
	else
		openssl dgst -sha256 -r "$1"
	fi | cut -d ' ' -f 1
}

# unpack fetches the archive of a program, compares its checksum, and leaves the program in $temp.
unpack() {
	archive=$1-$os-$arch.tar.gz
	want=$(awk -v name="$archive" '$2 == name {print $1}' "$temp/checksums.txt")
	[ -n "$want" ] || fail "$from/checksums.txt does not list $archive"
	fetch "$archive"
	got=$(sum "$temp/$archive")
	[ "$got" = "$want" ] || fail "$archive has the checksum $got, and checksums.txt says $want: nothing was installed"
	tar -xzf "$temp/$archive" -C "$temp" "$1" || fail "$archive has no $1"
}

# put moves a program into its directory at once, so that one that runs keeps its file.
put() {
	cp "$temp/$1" "$dir/.$1.new" && chmod 755 "$dir/.$1.new" && mv -f "$dir/.$1.new" "$dir/$1" || fail "$dir cannot be written: see --dir"
	echo "installed $dir/$1"
}

# All of it is read before any of it runs: a download that breaks off installs nothing.
main() {
	version=${DOVETAIL_VERSION:-} dir=${DOVETAIL_DIR:-} from='' lab='' plugin=''
	while [ $# -gt 0 ]; do
		case $1 in
		--version | --dir | --from)
			[ $# -gt 1 ] || fail "$1 needs a value. See install.sh --help"
			case $1 in
			--version) version=$2 ;;
			--dir) dir=$2 ;;
			--from) from=$2 ;;
			esac
			shift
			;;
		--lab) lab=yes ;;
		--plugin) plugin=yes ;;
		-h | --help)
			usage
			exit
			;;
		*) fail "unknown option $1. See install.sh --help" ;;
		esac
		shift
	done

	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) fail "there is no archive for $(uname -s). On Windows, unpack dovetail-windows-amd64.tar.gz of a release into a directory of PATH" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no archive for $(uname -m): only for amd64 and arm64" ;;
	esac

	releases=https://github.com/dovetail-k8s/dovetail/releases
	if [ -z "$from" ] && [ -n "$version" ]; then
		from=$releases/download/v${version#v}
	elif [ -z "$from" ]; then
		from=$releases/latest/download
	elif [ -n "$version" ]; then
		fail "--from has the files of one release, so --version has no meaning beside it"
	fi

	if [ -z "$dir" ]; then
		dir=/usr/local/bin
		[ -w "$dir" ] || dir=$HOME/.local/bin
	fi

	temp=$(mktemp -d)
	trap 'rm -rf "$temp"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM

	fetch checksums.txt
	unpack dovetail
	if [ -n "$lab" ]; then
		unpack dovetail-lab
	fi

	mkdir -p "$dir" || fail "$dir cannot be made: see --dir"
	put dovetail
	if [ -n "$lab" ]; then
		put dovetail-lab
	fi
	if [ -n "$plugin" ]; then
		ln -sf dovetail "$dir/kubectl-dovetail"
		echo "installed $dir/kubectl-dovetail"
	fi

	"$dir/dovetail" version
	case :$PATH: in
	*:"$dir":*) ;;
	*) echo "$dir is not in PATH: export PATH=\"$dir:\$PATH\"" ;;
	esac
}

main "$@"
