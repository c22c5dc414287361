package component

import (
	"context"
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	managerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	manageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/spf13/pflag"

	_ "time/tzdata" // time zones of CronJobs, on computers without their own

	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as the released programs have them
)

// The functions that run the Kubernetes components do what the commands of the released programs
// do, but end with ctx: those commands handle signals themselves, and one of them not at all.

func controllerManager(ctx context.Context, args []string) error {
	s, err := manageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, off, aliases := managerapp.KnownControllers(), managerapp.ControllersDisabledByDefault(), managerapp.ControllerAliases()
	flags := s.Flags(known, off, aliases)
	s.ParsedFlags = &flags
	if err := parse("kube-controller-manager", flags, args); err != nil {
		return err
	}
	if err := s.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // it watches deprecated APIs by design
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := logsapi.ValidateAndApply(s.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	c, err := s.Config(ctx, known, off, aliases)
	if err != nil {
		return err
	}
	return managerapp.Run(ctx, c.Complete())
}

func scheduler(ctx context.Context, args []string) error {
	s := scheduleroptions.NewOptions()
	if err := parse("kube-scheduler", *s.Flags, args); err != nil {
		return err
	}
	if err := s.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := logsapi.ValidateAndApply(s.Logs, s.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return err
	}
	c, sched, err := schedulerapp.Setup(ctx, s)
	if err != nil {
		return err
	}
	return schedulerapp.Run(ctx, c, sched)
}

// parse reads args into the options behind the named flag sets.
func parse(name string, sets cliflag.NamedFlagSets, args []string) error {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("takes no arguments, only flags: got %q", flags.Args())
	}
	return nil
}
