package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// environmentFile is the file in a state directory that the command env reads.
const environmentFile = "environment.json"

// tempPrefix is the prefix of temporary state directories.
const tempPrefix = "dovetail-lab-"

// clusterEnvironment is the administrator's environment of a cluster and its account.
type clusterEnvironment struct {
	Cluster   string
	Variables []world.Variable
}

func newEnv() *cobra.Command {
	var directory, cluster, output string
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the Kubernetes and AWS environment of a running lab",
		Long: `Print the Kubernetes and AWS environment of a running lab.

KUBECONFIG has the cluster administrator's credentials, the AWS variables have the account administrator's. kubectl, the
AWS CLI and every SDK read them. The command finds the lab that "dovetail-lab up" runs on this host. If several labs run,
choose one with --state-dir, and one of its clusters with --cluster.`,
		Example: `  eval "$(dovetail-lab env)"
  eval "$(dovetail-lab env --cluster lab-2)"
  dovetail-lab env -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "sh" && output != "json" {
				return usageError(cmd, fmt.Errorf("--output %q is neither sh nor json", output))
			}
			found, err := findEnvironment(directory, cluster)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(cmd.OutOrStdout(), found)
			}
			printExports(cmd.OutOrStdout(), found.Variables)
			return nil
		},
	}
	cmd.Flags().StringVar(&directory, "state-dir", "", "state directory of the lab (default: the only running lab's)")
	cmd.Flags().StringVar(&cluster, "cluster", "", "name of the cluster (default: the first)")
	cmd.Flags().StringVarP(&output, "output", "o", "sh", "sh or json")
	return cmd
}

// publishEnvironment writes the environment of a world into its state directory, where the command env finds it until
// withdraw is called or this process exits in any way: a file lock of this process shows that it is alive.
func publishEnvironment(w *world.World) (withdraw func() error, err error) {
	var all []clusterEnvironment
	for _, c := range w.Clusters {
		all = append(all, clusterEnvironment{Cluster: c.ID, Variables: c.AdministratorEnvironment()})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(w.Dir(), environmentFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("publish the environment: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("publish the environment: lock %s: %w", file.Name(), err), file.Close())
	}
	if _, err := file.Write(text); err != nil {
		return nil, errors.Join(fmt.Errorf("publish the environment: %w", err), file.Close())
	}
	return func() error { return errors.Join(os.Remove(file.Name()), file.Close()) }, nil
}

// errNoLab means that no lab runs.
var errNoLab = errors.New(
	"no lab is running: start one with `dovetail-lab up`; if you started it with --state-dir, pass the same --state-dir here",
)

// findEnvironment reads the environment of a cluster, the first if none is named, of the lab in a directory, the only
// one that runs if none is named.
func findEnvironment(directory, cluster string) (clusterEnvironment, error) {
	directories := []string{directory}
	if directory == "" {
		var err error
		if directories, err = filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*")); err != nil {
			return clusterEnvironment{}, err
		}
	}
	found := map[string][]clusterEnvironment{}
	for _, dir := range directories {
		if all, err := readEnvironment(dir); err == nil {
			found[dir] = all
		} else if directory != "" {
			return clusterEnvironment{}, err
		}
	}
	switch len(found) {
	case 0:
		return clusterEnvironment{}, errNoLab
	case 1:
	default:
		return clusterEnvironment{}, fmt.Errorf(
			"%d labs are running: choose one with --state-dir: %s",
			len(found),
			strings.Join(slices.Sorted(maps.Keys(found)), ", "),
		)
	}
	var names []string
	for _, all := range found {
		for _, c := range all {
			if cluster == "" || c.Cluster == cluster {
				return c, nil
			}
			names = append(names, c.Cluster)
		}
	}
	return clusterEnvironment{}, fmt.Errorf("no cluster %q: the lab has %s", cluster, strings.Join(names, ", "))
}

// readEnvironment reads the environment that a running lab published in a directory.
func readEnvironment(dir string) ([]clusterEnvironment, error) {
	file, err := os.Open(filepath.Join(dir, environmentFile))
	if err != nil {
		return nil, fmt.Errorf("no lab is running in %s: %w", dir, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !ownedByUser(info) {
		return nil, errors.Join(fmt.Errorf("the lab in %s belongs to another user", dir), err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return nil, fmt.Errorf("no lab is running in %s: the last one was killed", dir)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("environment of the lab in %s: %w", dir, err)
	}
	var all []clusterEnvironment
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("environment of the lab in %s: %w", dir, err)
	}
	return all, nil
}

// ownedByUser reports whether the current user owns a file. A shell evaluates the output of the command env, and any
// user can create files in the directory for temporary files.
func ownedByUser(file os.FileInfo) bool {
	stat, ok := file.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
