# Prints the section of CHANGELOG.md for -v version=0.1.0, without its title. Fails if there is none: each release has notes.
/^## / { inside = index($2, "[" version "]") == 1 || $2 == version; if (inside) found = 1; next }
/^\[.*\]: / { next }
inside { print }
END { if (!found) { print "CHANGELOG.md has no section for " version > "/dev/stderr"; exit 1 } }
