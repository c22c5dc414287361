package component

import (
	"context"
	"runtime/debug"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

func apiServer(ctx context.Context, args []string) error {
	s := options.NewServerRunOptions()
	if err := parse("kube-apiserver", s.Flags(), args); err != nil {
		return err
	}
	globals := s.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := globals.Set(); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // its own loopback client would log them
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := logsapi.ValidateAndApply(s.Logs, globals.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return err
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return utilerrors.NewAggregate(errs)
	}
	return serve(ctx, completed)
}

// serve is the released program's Run, with the right version for clients.
func serve(ctx context.Context, opts options.CompletedOptions) error {
	config, err := app.NewConfig(opts)
	if err != nil {
		return err
	}
	generic := config.KubeAPIs.ControlPlane.Generic
	released := releasedVersion{EffectiveVersion: generic.EffectiveVersion, release: kubernetesRelease()}
	generic.EffectiveVersion = released
	config.ApiExtensions.GenericConfig.EffectiveVersion = released
	config.Aggregator.GenericConfig.EffectiveVersion = released

	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// A releasedVersion reports the release of Kubernetes to clients. Official builds set it in the
// linker; without it clients would get v0.0.0, which no chart or client accepts.
type releasedVersion struct {
	basecompatibility.EffectiveVersion
	release string // as in "v1.37.2"; empty if unknown
}

func (v releasedVersion) Info() *version.Info {
	info := v.EffectiveVersion.Info()
	if info == nil || v.release == "" {
		return info
	}
	info.GitVersion, info.GitCommit = v.release, ""
	return info
}

// kubernetesRelease is the version of the module that the components are linked from, or empty
// in a binary that holds no record of its modules.
func kubernetesRelease() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, module := range build.Deps {
		if module.Path == "k8s.io/kubernetes" {
			return module.Version
		}
	}
	return ""
}
