package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

func snapshotCommand() *cobra.Command {
	var kubeContext, output string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Write what plans of a cluster depend on to one file, to plan it elsewhere",
		Long: `Reads Namespaces, NodePools, EC2NodeClasses, NodeClaims, Nodes, CSINodes, StorageClasses,
PersistentVolumes, PersistentVolumeClaims, PodDisruptionBudgets, DaemonSets and Pods, and what Services,
ReplicationControllers, ReplicaSets and StatefulSets select, and writes them as one YAML file for dovetail plan -f.
The cluster is that of KUBECONFIG.

What a plan does not depend on stays behind: Secrets and ConfigMaps are not read; of pods there are no
environment, commands, probes and volumes of configuration; of node classes no user data; annotations are only
those of karpenter.sh and of storage. Names, labels and images are there: look at the file before you send it.

Exit codes: 0 when the whole cluster is written, 1 when it cannot be read, 2 when the command line is wrong.`,
		Example: `  dovetail snapshot > now.yaml
  dovetail snapshot | dovetail plan -f -
  dovetail snapshot --context production -o now.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clientconfig.GetConfigWithContext(kubeContext)
			if err != nil {
				return fmt.Errorf("find the cluster: %w (set KUBECONFIG to a file that kubectl works with, and --context to a context in it)", err)
			}
			config.UserAgent = "dovetail/" + version
			scheme, err := newScheme()
			if err != nil {
				return err
			}
			cluster, err := client.New(config, client.Options{Scheme: scheme})
			if err != nil {
				return fmt.Errorf("reach the cluster: %w", err)
			}
			if output == "" {
				return manifest.Dump(cmd.Context(), cluster, time.Now(), cmd.OutOrStdout())
			}
			return toFile(output, func(w io.Writer) error { return manifest.Dump(cmd.Context(), cluster, time.Now(), w) })
		},
	}
	cmd.Flags().StringVar(&kubeContext, "context", "", "context of KUBECONFIG; the current one if not set")
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; standard output if not set")
	return cmd
}

// toFile writes a file that only its owner can read. One that could not be written to its end is removed.
func toFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path) // the first error tells more
	}
	return err
}
