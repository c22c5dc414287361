package text

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Deletions are what the controller has deleted, with the proofs, the oldest first.
type Deletions struct {
	Deletions []destroy.Record `json:"deletions"`
	// Unreadable counts the frames of the recording that are left out.
	Unreadable int `json:"unreadableFrames"`
}

// DeletionsOf is the list of the deletions from a time on; zero is their first.
func DeletionsOf(r *recorder.Recording, from time.Time) Deletions {
	var out Deletions
	out.Deletions, out.Unreadable = r.Deletions(from)
	return out
}

// JSON prints the records.
func (d Deletions) JSON(out io.Writer) error {
	d.Deletions = append([]destroy.Record{}, d.Deletions...)
	return report.JSON(out, "DeletionList", d)
}

// Text prints a line per deletion.
func (d Deletions) Text(out io.Writer) error {
	if len(d.Deletions) == 0 {
		_, err := fmt.Fprintln(out, "no deletions")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tVERB\tOBJECT\tNODEPOOL\tKIND\tREASON\tDECISION\tINSTANCE")
	for _, r := range d.Deletions {
		object := r.Object.Name
		if r.Object.Namespace != "" {
			object = r.Object.Namespace + "/" + object
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.At.Format(time.RFC3339), r.Verb, cmp.Or(object, "-"), cmp.Or(r.NodePool, "-"),
			r.Kind, r.Reason, cmp.Or(r.Decision, "-"), instanceOf(r))
	}
	return w.Flush()
}

// instanceOf is the instance of a record, with its state as EC2 described it.
func instanceOf(r destroy.Record) string {
	if r.Instance.State == "" {
		return cmp.Or(r.Instance.ProviderID, "-")
	}
	return fmt.Sprintf("%s (%s)", r.Instance.ProviderID, r.Instance.State)
}
