# Prints the lines of bin/parts.txt and the sum of their CPU time. Parts run beside each other, so the sum of their wall times is no time.
{ print "  " $0; cpu += $5 }
END { printf "  %-16s %24.1f s CPU\n", "sum", cpu }
