package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dovetail-k8s/dovetail/internal/clusters"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// bindContexts declares the flags of a command that can show several clusters in one table.
func (k *kubeFlags) bindContexts(cmd *cobra.Command) {
	k.bindUser(cmd)
	fs := cmd.Flags()
	fs.StringArrayVar(&k.contexts, clientcmd.FlagContext, nil,
		"context of the kubeconfig file (default: its current context); can be repeated, for one table over clusters")
	fs.BoolVar(&k.allContexts, "all-contexts", false, "one table over the clusters of all contexts of the kubeconfig file")
	complete(cmd, clientcmd.FlagContext, func(*cobra.Command) []string { return contexts(k.raw()) })
}

// choose returns the contexts of the flags if they select several clusters, and nil if they select one.
func (k *kubeFlags) choose() ([]string, error) {
	if k.allContexts && len(k.contexts) > 0 {
		return nil, errors.New("--context and --all-contexts: use only one of them")
	}
	if !k.allContexts && len(k.contexts) < 2 {
		for _, name := range k.contexts {
			k.context = name
		}
		return nil, nil
	}
	config, err := k.loader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read the contexts: %w (%s)", err, setKubeconfig)
	}
	known := contexts(config)
	if len(known) == 0 {
		return nil, errors.New("the kubeconfig file has no context (" + setKubeconfig + ")")
	}
	if k.allContexts {
		return known, nil
	}
	var out []string
	for _, name := range k.contexts {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--context: the kubeconfig file has no context %q; it has %s", name,
				visibleLine(strings.Join(known, ", ")))
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// of selects one of several clusters.
func (k *kubeFlags) of(context string) kubeFlags {
	one := *k
	one.context, one.contexts, one.allContexts, one.several = context, nil, false, true
	return one
}

// How long one of several clusters may take: without a bound, one that does not answer would keep the table of all others.
const (
	// reachTimeout is for credentials and the first answer. A command that prints credentials takes 1 or 2 s.
	reachTimeout = 30 * time.Second
	// readTimeout is for all objects that a command reads: 100,000 pods are about 1 GB.
	readTimeout = 5 * time.Minute
)

// reach is operator.Reach, until ctx is done. It waits for one of several clusters for reachTimeout at most.
func (k *kubeFlags) reach(ctx context.Context, config *rest.Config) error {
	if k.several {
		bounded, cancel := context.WithTimeout(ctx, reachTimeout)
		defer cancel()
		ctx = bounded
	}
	return reachWithin(ctx, config)
}

// reachWithin returns when ctx is done, even while a command runs that prints credentials: that knows of no context.
func reachWithin(ctx context.Context, config *rest.Config) error {
	answer := make(chan error, 1)
	go func() { answer <- operator.Reach(config, settings.Settings{}) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return fmt.Errorf("reach the API server %s: neither it nor the command for credentials, if the kubeconfig file has one, "+
			"answered in time: %w", config.Host, ctx.Err())
	}
}

// eksCluster is the name and region of the EKS cluster of a context, as far as its ARN is in the kubeconfig file.
func (k *kubeFlags) eksCluster(context string) (name, region string) {
	config := k.raw()
	if config.Contexts[context] == nil {
		return "", ""
	}
	parsed, err := arn.Parse(config.Contexts[context].Cluster)
	name, found := strings.CutPrefix(parsed.Resource, "cluster/")
	if err != nil || !found {
		return "", ""
	}
	return name, parsed.Region
}

// server is the address of a context's API server; empty if the kubeconfig file does not have it.
func (k *kubeFlags) server(context string) string {
	config := k.raw()
	if of := config.Contexts[context]; of != nil && config.Clusters[of.Cluster] != nil {
		return strings.TrimRight(config.Clusters[of.Cluster].Server, "/")
	}
	return ""
}

// clustersAtOnce sets how many clusters are read at once: each answer is in memory as a whole, and their API servers are elsewhere.
const clustersAtOnce = 4

// printClusters writes what was found in several clusters, as a table or as JSON or YAML.
func printClusters[R any](out io.Writer, format string, found clusters.List[R],
	table func(io.Writer, []clusters.Result[R]) error,
) error {
	switch format {
	case "json":
		return found.JSON(out)
	case "yaml":
		return asYAML(found.JSON)(out)
	}
	return forTerminal(func(w io.Writer) error { return table(w, found.Clusters) })(out)
}

// incomplete is the exit code of a command that could not read all clusters.
func incomplete[R any](results []clusters.Result[R]) error {
	if clusters.Failed(results) > 0 {
		return exitIncomplete
	}
	return nil
}

// namesOneCluster refuses flags with which several clusters make no sense.
func namesOneCluster(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for one cluster: leave it out, or use one --context", name)
		}
	}
	return nil
}
