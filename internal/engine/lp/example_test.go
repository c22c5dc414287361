package lp_test

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
)

// Two nodes at different prices per core, and pods that can use both.
func Example() {
	var class lp.ClassSet
	class.Add(0)
	p := lp.New(lp.Input{
		Axes:    2, // millicores and MiB
		Classes: 1,
		Offerings: []lp.Offering{
			{Room: []int64{4000, 8192}, Price: 0.20, Classes: class},
			{Room: []int64{8000, 32768}, Price: 0.30, Classes: class},
		},
		Pods: []lp.Pods{{Class: 0, Requests: []int64{1000, 2048}, Count: 80}},
	})
	fmt.Printf("a pod is worth $%.4f/h: no plan for 80 pods costs less than $%.2f/h\n", p.Value(0), 80*p.Value(0))
	// Output:
	// a pod is worth $0.0375/h: no plan for 80 pods costs less than $3.00/h
}
