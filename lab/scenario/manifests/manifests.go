// Package manifests holds the Kubernetes objects of the lab's clusters: NodePools, EC2NodeClasses and workloads, as for
// a real cluster. ${NAMES} are variables that differ between clusters.
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
	// Sample is a Deployment with pods that fit on any node. Variable: REPLICAS.
	Sample = "sample.yaml"
	// ConsoleAccess is what a console with a login needs.
	ConsoleAccess = "console-access.yaml"
	// OnePerNode is a Deployment, one-per-node, with anti-affinity: each pod needs its own node. Variable: REPLICAS.
	OnePerNode = "one-per-node.yaml"
	// Spread is a Deployment with no replicas and a topology spread constraint over three zones.
	Spread = "spread.yaml"
	// MediumInstances limits the default NodePool to instance types of 8 and 16 CPUs, so that a workload needs many nodes.
	// Variable: CLUSTER_NAME.
	MediumInstances = "medium-instances.yaml"
	// Chaos is a NodePool of instance types of 4 and 8 CPUs with a disruption budget of three nodes. Variable:
	// CLUSTER_NAME.
	Chaos = "chaos.yaml"
	// ChaosWorkload are workloads with no replicas: web is spread over zones, batch has large requests, the pods of keep
	// have do-not-disrupt, and those of ledger have a volume each.
	ChaosWorkload = "chaos-workload.yaml"
	// TwoClustersPools are two NodePools of instance types of 2 CPUs, one with a short expireAfter, and their
	// EC2NodeClass. Variables: CLUSTER_NAME, AMI_ALIAS, GENERATION (a label of the steady nodes), DRIFT_BUDGET (how many
	// of them may be replaced at a time for another).
	TwoClustersPools = "two-clusters-pools.yaml"
	// TwoClustersWorkload are Deployments with no replicas and pods that each take a node of TwoClustersPools: steady, and
	// brief on the NodePool with a short expireAfter.
	TwoClustersWorkload = "two-clusters-workload.yaml"
	// Karpenter is the Deployment and the ServiceAccount of a Karpenter with a pod that finds no node. Variable: CLUSTER_NAME.
	Karpenter = "karpenter.yaml"
	// AsKarpenter is the NodePool and the EC2NodeClass of a cluster that Karpenter runs, and what an installation of Dovetail beside it
	// creates, with no replicas. Variable: CLUSTER_NAME.
	AsKarpenter = "as-karpenter.yaml"
	// Storage is the EBS CSI driver: its registration, its node daemon, and two StorageClasses: gp3, the default, and
	// gp3-immediate. Variable: TOLERATIONS of the daemon, in JSON.
	Storage = "storage.yaml"
	// Database is a StatefulSet of pods with a volume each. Variables: REPLICAS, STORAGE_CLASS.
	Database = "database.yaml"
	// Static is a NodePool of two nodes, at most three, with its EC2NodeClass, a NodeOverlay that adds an extended
	// resource, and a CapacityBuffer that fits on them. Variable: CLUSTER_NAME.
	Static = "static.yaml"
	// DisruptionPool is a NodePool with variable disruption settings, and its EC2NodeClass. Variables: CLUSTER_NAME,
	// AMI_ALIAS, CPUS (a JSON list), CAPACITY_TYPE, EXPIRE_AFTER, CONSOLIDATE_AFTER, BUDGET.
	DisruptionPool = "disruption-pool.yaml"
	// PatchNodeStatus lets the controller patch the status of Nodes.
	PatchNodeStatus = "patch-node-status.yaml"
	// PatchDeployments lets the controller patch Deployments.
	PatchDeployments = "patch-deployments.yaml"
	// Service is a Deployment of pods that serve for 5 s after their deletion. Variables: NAME, REPLICAS, and in JSON ANNOTATIONS,
	// TEMPLATE_ANNOTATIONS.
	Service = "service.yaml"
	// PatchPods lets the controller patch pods.
	PatchPods = "patch-pods.yaml"
	// DisruptionWorkload are two Deployments, front and store, each with a PodDisruptionBudget of a tenth; an instance of
	// 2 CPUs fits one pod of front. Variables: FRONT, STORE (replicas).
	DisruptionWorkload = "disruption-workload.yaml"
	// LimitedPool is a NodePool of small burstable instance types with a CPU limit, and its EC2NodeClass with a
	// custom AMI. Variables: CLUSTER_NAME, AMI_ID.
	LimitedPool = "limited-pool.yaml"
	// LimitedWorkload is a Deployment for LimitedPool.
	LimitedWorkload = "limited-workload.yaml"
	// Reserved is a NodePool of instance types of 2 CPUs that prefers the cluster's capacity reservations to on-demand.
	// Variable: CLUSTER_NAME.
	Reserved = "reserved.yaml"
	// ReservedWorkload is a Deployment with no replicas; each pod takes an instance of 2 CPUs.
	ReservedWorkload = "reserved-workload.yaml"
	// TerminateFirst are two NodePools of nodes that cannot be replaced before they go, and their EC2NodeClasses: fixed has
	// two replicas, which is its limit, and reserved runs in the cluster's capacity reservations only. Variables:
	// CLUSTER_NAME, FIXED_AMI, RESERVED_AMI (aliases).
	TerminateFirst = "terminate-first.yaml"
	// Takeover is a NodePool with nodes that are only removed when they are empty or drifted, and its EC2NodeClass. Variables:
	// CLUSTER_NAME, GENERATION (a label of the nodes), BUDGET.
	Takeover = "takeover.yaml"
	// ImageFamily is a NodePool of one instance type, its EC2NodeClass with every setting that all families support, and a
	// Deployment of one pod for it. Variables: CLUSTER_NAME, FAMILY, AMI_FAMILY, AMI (a term in YAML), USER_DATA (a string
	// in JSON).
	ImageFamily = "image-family.yaml"
	// RefusedNodes is a NodePool of instance types of 4 CPUs, an EC2NodeClass, and a Deployment for it, of which two pods fit on a node.
	// Variables: CLUSTER_NAME, NAME (of the NodePool and the Deployment), REPLICAS.
	RefusedNodes = "refused-nodes.yaml"
	// NodeFaults are admission policies that make nodes of the NodePools tainted, late, relabeled and small unfit for their pods, and
	// reject the bindings of the pods of unbindable.
	NodeFaults = "node-faults.yaml"
	// GangPools are two NodePools with a limit each, and their EC2NodeClass: gangs, of instances of 2 CPUs, and mixed, of instances of 2 and
	// 4. Variables: CLUSTER_NAME, GANGS, MIXED (limits in CPUs).
	GangPools = "gang-pools.yaml"
	// Gang is a PodGroup and a Deployment of pods in it, each of which takes an instance of 2 CPUs of the pool. Variables: NAME, POOL,
	// REPLICAS, MIN_COUNT, KEY (of schedulingConstraints, as a list in YAML).
	Gang = "gang.yaml"
	// Devices is a NodePool of instance types with NVIDIA GPUs, some of them with EFA, and its EC2NodeClass. Variable:
	// CLUSTER_NAME.
	Devices = "devices.yaml"
	// DevicesWorkload are two Deployments with no replicas, gpu and efa, with pods that request nothing but a device by a
	// ResourceClaim, and the device classes.
	DevicesWorkload = "devices-workload.yaml"
	// ExtendedWorkload is a device class that stands for nvidia.com/gpu, and the Deployment extended, with no replicas. Its pods request
	// one.
	ExtendedWorkload = "extended-workload.yaml"
	// Outage are the NodePools default and drifting, of nodes that are not consolidated, their EC2NodeClass, and the Deployment drifting with
	// a pod for the second. Variable: CLUSTER_NAME.
	Outage = "outage.yaml"
	// NominatedPods are a pod that is to be nominated to a node, and that evicts no other; the NodePool default is for it. Variables: NAME,
	// CPU.
	NominatedPod = "nominated-pod.yaml"
	// InstanceStore is a NodePool of instance types with and without disks of their own, its EC2NodeClass, the CSI driver for such disks,
	// its storage class, and the StatefulSet local with a volume of 200 GB for each pod. Variables: CLUSTER_NAME, REPLICAS.
	InstanceStore = "instance-store.yaml"
	// Rollout is a NodePool of instance types of 2 CPUs with the annotation dovetail.sh/rollout, and its EC2NodeClass. Variables:
	// CLUSTER_NAME, NAME (of both), AMI_ALIAS, ROLLOUT (the annotation), ZONES (a JSON list).
	Rollout = "rollout.yaml"
	// RolloutWorkload is a Deployment for Rollout, spread over zones; each pod takes a node. Variables: NAME, REPLICAS.
	RolloutWorkload = "rollout-workload.yaml"
	// RolloutDaemons are two DaemonSets, agent and gpu-device-plugin.
	RolloutDaemons = "rollout-daemons.yaml"
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
