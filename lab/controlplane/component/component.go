// Package component holds the programs that the lab's control plane is made of: etcd and the
// Kubernetes components, linked from their own Go modules. One process runs one of them, because
// each sets process-wide state (feature gates, log flags, metrics registries).
//
// It is the only package that links k8s.io/kubernetes, which takes minutes to compile from
// nothing; packages that need a control plane execute the binary that holds this one.
package component

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// programs are the components by the name they have in a cluster.
var programs = []program{
	{name: "etcd", run: etcd},
	{name: "kube-apiserver", run: apiServer},
	{name: "kube-controller-manager", run: controllerManager},
	{name: "kube-scheduler", run: scheduler},
}

type program struct {
	name string
	run  func(ctx context.Context, args []string) error
}

// Run runs the named component with its command-line arguments until ctx is done (the error is then
// nil) or the component fails. It may be called once per process.
func Run(ctx context.Context, name string, args []string) error {
	i := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("unknown component %q (known: %s)", name, strings.Join(Names(), ", "))
	}
	err := programs[i].run(ctx, args)
	switch {
	case ctx.Err() != nil:
		// Some components call an orderly end an error, each in its own words.
		return nil
	case err == nil:
		return errors.New(name + " exited unexpectedly")
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
}

// Names lists the components that Run knows.
func Names() []string {
	names := make([]string, len(programs))
	for i, p := range programs {
		names[i] = p.name
	}
	return names
}
