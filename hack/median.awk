# Medians of repeated Go benchmarks: a line for each, in the format in which go test prints them.
/^Benchmark/ {
	if (!($1 in seen)) { seen[$1] = 1; order[++count] = $1 }
	for (i = 3; i < NF; i += 2) {
		unit = $(i + 1)
		if (!(($1, unit) in runs)) units[$1] = units[$1] " " unit
		value[$1, unit, ++runs[$1, unit]] = $i
	}
	next
}
/^(FAIL|panic|---)/ { print }
END {
	for (b = 1; b <= count; b++) {
		name = order[b]
		n = split(units[name], list, " ")
		line = sprintf("%-56s %3d", name, runs[name, list[1]])
		for (u = 1; u <= n; u++) {
			m = runs[name, list[u]]
			for (i = 1; i <= m; i++) v[i] = value[name, list[u], i] + 0
			for (i = 2; i <= m; i++) {
				x = v[i]
				for (j = i - 1; j > 0 && v[j] > x; j--) v[j + 1] = v[j]
				v[j + 1] = x
			}
			line = line sprintf("  %.6g %s", v[int((m + 1) / 2)], list[u])
		}
		print line
	}
}
