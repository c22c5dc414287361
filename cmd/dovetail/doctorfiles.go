package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// runFiles makes all checks of files that need nothing of AWS, as of the time of the snapshot. The environment of a shell may have the name
// and the region of a cluster; flags that are for a live one are an error.
func (f *doctorFlags) runFiles(cmd *cobra.Command) error {
	if f.kube.given() || cmd.Flags().Changed("cluster-name") || cmd.Flags().Changed("region") {
		return misused(cmd, errors.New("-f and --kubeconfig, --context, --as, --cluster-name and --region: use only one of them; "+
			"the cluster is either live or in files"))
	}
	state, err := manifest.Input{Paths: f.files, Stdin: cmd.InOrStdin()}.Read()
	if err != nil {
		return err
	}
	for _, note := range state.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", visibleLine(note))
	}
	facts := factsOfFiles(state)
	for _, fact := range []doctor.Fact{doctor.Instances, doctor.InstanceTypes, doctor.Joining, doctor.Permissions, doctor.Identity} {
		facts.Miss(fact, "files have nothing of AWS")
	}
	return f.print(doctor.Run(facts), cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// factsOfFiles are the objects of files.
func factsOfFiles(state *manifest.ClusterState) *doctor.Facts {
	out := &doctor.Facts{
		Now: state.Now, Pods: state.Pods,
		NodePools: values(state.NodePools), NodeClaims: values(state.NodeClaims), Nodes: values(state.Nodes),
		DaemonSets: values(state.DaemonSets), PDBs: values(state.PDBs), StorageClasses: values(state.StorageClasses),
		Volumes: values(state.PersistentVolumes), VolumeClaims: values(state.PersistentVolumeClaims),
		VolumeAttachments: values(state.VolumeAttachments),
	}
	for _, name := range slices.Sorted(maps.Keys(state.NodeClasses)) {
		out.NodeClasses = append(out.NodeClasses, *state.NodeClasses[name])
	}
	return out
}

// values are what pointers point to.
func values[T any](pointers []*T) []T {
	out := make([]T, len(pointers))
	for i, p := range pointers {
		out[i] = *p
	}
	return out
}
