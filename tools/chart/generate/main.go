// Command generate makes the files of the charts that are derived: README.md, values.schema.json and templates/_known.tpl from their
// values, and copies of the CustomResourceDefinitions.
package main

import (
	"fmt"
	"os"

	"github.com/dovetail-k8s/dovetail/tools/chart/reference"
)

func main() {
	for _, chart := range os.Args[1:] {
		if err := reference.Write(chart); err != nil {
			fmt.Fprintf(os.Stderr, "error: %s: %v\n", chart, err)
			os.Exit(1)
		}
	}
}
