package compare

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes a table: for each workload a line of each autoscaler.
func (r Report) Print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKLOAD\tCONTROLLER\t$/h\tNODES\tEVICTIONS\tPENDING P50\tP95\tCPU\tPEAK MEMORY\tTOOK")
	last := ""
	for _, one := range r.Results {
		name := one.Workload
		if name == last {
			name = ""
		}
		last = one.Workload
		fmt.Fprintf(t, "%s\t%s\t%.3f\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%.0f MiB\t%.0f s\n", name, one.Controller, one.HourlyCost, one.Nodes,
			one.Evictions, one.PendingP50, one.PendingP95, one.CPUSeconds, one.PeakMiB, one.TookSeconds)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, failure := range r.Failures() {
		fmt.Fprintln(out, "failed: "+failure)
	}
	_, err := fmt.Fprintf(out, "Machine: %s. Instances, prices and joining are of the lab's AWS simulator.\n", r.Machine)
	return err
}
