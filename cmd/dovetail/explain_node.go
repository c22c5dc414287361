package main

import (
	"io"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// folded is a report that folds its lines.
type folded struct {
	of interface {
		Text(w io.Writer, width int) error
	}
}

// Text prints it for a terminal of the usual width.
func (f folded) Text(w io.Writer) error { return f.of.Text(w, report.Width) }

// Wide prints all of it, without folding.
func (f folded) Wide(w io.Writer) error { return f.of.Text(w, 0) }

// JSON prints what the text is made from.
func (f folded) JSON(w io.Writer) error {
	return report.JSON(w, f.of)
}

// explainNode explains the Node of a name.
func explainNode(view *inspect.View, name string) (printer, error) {
	r, err := nodereport.OfNode(view, name)
	if err != nil {
		return nil, err
	}
	return folded{r}, nil
}

// explainNodeClaim explains the node of a NodeClaim.
func explainNodeClaim(view *inspect.View, name string) (printer, error) {
	r, err := nodereport.OfClaim(view, name)
	if err != nil {
		return nil, err
	}
	return folded{r}, nil
}
