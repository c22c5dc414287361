package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

func snapshotCommand() *cobra.Command {
	var output choice
	var kube kubeFlags
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Write everything that plans of a cluster depend on to one file, to plan it elsewhere",
		Long: `Reads Namespaces, NodePools, EC2NodeClasses, NodeClaims, Nodes, CSINodes, CSIDrivers, CSIStorageCapacities,
StorageClasses, PersistentVolumes, PersistentVolumeClaims, VolumeAttachments, PodDisruptionBudgets, DaemonSets and Pods, what Services,
ReplicationControllers, ReplicaSets and StatefulSets select, and ResourceClaims, their templates, DeviceClasses, ResourceSlices
and DeviceTaintRules if it may read them, and writes them as one YAML file for dovetail plan -f.
The cluster is that of KUBECONFIG, or of --kubeconfig and --context.

The file has nothing that a plan does not depend on: Secrets and ConfigMaps are not read; pods are written without
environment, commands, probes and configuration volumes, node classes without user data, resource claims without configuration;
of annotations, only those of karpenter.sh and of storage are kept. Names, labels and images are in it: check the file before you share it.

If writing fails, the incomplete file is removed.`,
		Example: `  dovetail snapshot > now.yaml
  dovetail snapshot | dovetail plan -f -
  dovetail snapshot --context production --output-file now.yaml`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{handlesInterrupt: "an incomplete file is removed"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, _, err := kube.client()
			if err != nil {
				return err
			}
			if output.value == "json" {
				return manifest.DumpJSON(cmd.Context(), cluster, time.Now(), cmd.OutOrStdout())
			}
			return manifest.Dump(cmd.Context(), cluster, time.Now(), cmd.OutOrStdout())
		},
	}
	kube.bind(cmd)
	bindOutput(cmd, &output, "yaml", "json")
	withOutputFile(cmd)
	return cmd
}
