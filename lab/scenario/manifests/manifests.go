// Package manifests holds the objects that the lab's clusters are given: NodePools, EC2NodeClasses and
// workloads, as one would write them for a real cluster. ${NAMES} stand for what differs between
// clusters.
package manifests

import (
	"embed"
	"fmt"
	"os"
)

//go:embed *.yaml
var files embed.FS

// Names of the manifests.
const (
	// Default is a NodePool and an EC2NodeClass that suit most workloads. Variable: CLUSTER_NAME.
	Default = "default.yaml"
	// Sample is a Deployment that any node can take. Variable: REPLICAS.
	Sample = "sample.yaml"
	// OnePerNode is a Deployment, lonely, with pods that each need a node of their own. Variable: REPLICAS.
	OnePerNode = "one-per-node.yaml"
	// Spread is a Deployment without pods yet; those of its scale are spread evenly over three zones.
	Spread = "spread.yaml"
	// MediumInstances limits the default NodePool to machines of 8 and 16 CPUs, so that there are many.
	// Variable: CLUSTER_NAME.
	MediumInstances = "medium-instances.yaml"
	// Chaos is a pool of machines of 4 and 8 CPUs that lets three nodes go at a time. Variable: CLUSTER_NAME.
	Chaos = "chaos.yaml"
	// ChaosWorkload are workloads without pods yet: web is spread over zones, batch asks for much, the pods of keep may not
	// be moved, and those of ledger have a volume each.
	ChaosWorkload = "chaos-workload.yaml"
	// TwoClustersPools are two NodePools of machines of 2 CPUs, of which the nodes of one expire soon, and their EC2NodeClass.
	// Variables: CLUSTER_NAME, AMI_ALIAS, GENERATION (a label of the steady nodes), DRIFT_BUDGET (how many of them may be
	// replaced at a time for another).
	TwoClustersPools = "two-clusters-pools.yaml"
	// TwoClustersWorkload are Deployments without pods yet, whose pods each take a node of Twin: steady, and brief on the pool whose
	// nodes expire.
	TwoClustersWorkload = "two-clusters-workload.yaml"
	// Storage is the EBS CSI driver: its registration, its node daemon, and two StorageClasses: gp3, the default, and gp3-immediate.
	// Variable: TOLERATIONS of the daemon, in JSON.
	Storage = "storage.yaml"
	// Database is a StatefulSet of pods with a volume each. Variables: REPLICAS, STORAGE_CLASS.
	Database = "database.yaml"
	// Static is a NodePool of two nodes, three at most, with its EC2NodeClass, a NodeOverlay that gives its nodes a device,
	// and a CapacityBuffer that has room on them. Variable: CLUSTER_NAME.
	Static = "static.yaml"
	// DisruptionPool is a NodePool whose nodes may be given back, and its EC2NodeClass. Variables: CLUSTER_NAME, AMI_ALIAS, CPUS (a JSON
	// list), CAPACITY_TYPE, EXPIRE_AFTER, CONSOLIDATE_AFTER, BUDGET.
	DisruptionPool = "disruption-pool.yaml"
	// DisruptionWorkload are two Deployments, front and store, each with a PodDisruptionBudget of a tenth; on a machine of 2 CPUs is room for
	// one pod of front. Variables: FRONT, STORE (replicas).
	DisruptionWorkload = "disruption-workload.yaml"
	// LimitedPool is a NodePool of small burstable machines with a CPU limit and its EC2NodeClass with an
	// image of its own. Variables: CLUSTER_NAME, AMI_ID.
	LimitedPool = "limited-pool.yaml"
	// LimitedWorkload is a Deployment for LimitedPool.
	LimitedWorkload = "limited-workload.yaml"
	// Reserved is a pool of machines of 2 CPUs that uses what is reserved for the cluster, and else buys on demand.
	// Variable: CLUSTER_NAME.
	Reserved = "reserved.yaml"
	// ReservedWorkload is a Deployment without pods yet, each of which takes a machine of 2 CPUs.
	ReservedWorkload = "reserved-workload.yaml"
	// ImageFamily is a NodePool of one machine type, its EC2NodeClass with as much as every Linux family takes, and a Deployment
	// of one pod for it. Variables: CLUSTER_NAME, FAMILY, AMI_FAMILY, AMI (a term in YAML), USER_DATA (a string in JSON).
	ImageFamily = "image-family.yaml"
)

// Render returns a manifest with its variables replaced.
func Render(name string, variables map[string]string) ([]byte, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", name, err)
	}
	var missing error
	out := os.Expand(string(text), func(variable string) string {
		value, ok := variables[variable]
		if !ok {
			missing = fmt.Errorf("manifest %s: variable %s has no value", name, variable)
		}
		return value
	})
	return []byte(out), missing
}
