package main

import (
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/poolreport"
)

// explainNodePool explains the NodePool of a name.
func explainNodePool(view *inspect.View, name string) (printer, error) {
	r, err := poolreport.Of(view, name)
	if err != nil {
		return nil, err
	}
	return folded{r}, nil
}
