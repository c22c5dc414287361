package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// overdue is the age at which the checks report a node that waits for a taint, or an instance that is not a node yet.
const overdue = time.Minute

// counterpartAge is the age from which on a NodeClaim must have its instance, and an instance its NodeClaim: launches
// and garbage collection take less.
const counterpartAge = 5 * time.Minute

func identityChecks() []Check {
	return []Check{
		{
			ID: "identity-cluster", Area: "identity", Severity: Error, Title: "the API server is not that of the named cluster",
			Why: "new nodes would join another cluster; the controller refuses to start", needs: []Fact{Identity}, run: clusterMismatch,
		},
		{
			ID: "identity-foreign-instance", Area: "identity", Severity: Error, Title: "another cluster uses the same name",
			Why:   "autoscalers that own instances by the cluster's name drift, collect and terminate one another's nodes",
			needs: []Fact{Instances}, run: foreignInstances,
		},
		{
			ID: "identity-unknown-instance", Area: "identity", Severity: Warning, Title: "an instance has the cluster's name but no owner's UID",
			Why: "it costs money, and the controller does not touch it", needs: []Fact{Instances}, run: unknownInstances,
		},
	}
}

func clusterMismatch(f *Facts) []Finding {
	if f.Mismatch == "" {
		return nil
	}
	return []Finding{
		{
			Object: "cluster " + f.ClusterName,
			Seen:   f.Mismatch,
			Remedy: "set settings.clusterName (CLUSTER_NAME, --cluster-name) to the name that aws eks list-clusters shows for this API server, " +
				"and region and credentials to those of its account",
		},
	}
}

func foreignInstances(f *Facts) (out []Finding) {
	byCluster := map[string][]string{}
	for _, i := range f.Instances {
		if i.Owner == cloudprovider.Foreign {
			uid := i.Tags[awsv1.TagClusterUID]
			byCluster[uid] = append(byCluster[uid], i.ID)
		}
	}
	for uid, ids := range byCluster {
		out = append(out, Finding{
			Object: "cluster " + f.ClusterName, Seen: fmt.Sprintf("%d instances with this cluster name belong to the cluster with UID %s: %s",
				len(ids), uid, few(ids)),
			Remedy: "give each cluster a name of its own: set settings.clusterName (CLUSTER_NAME) of each controller to the name of its EKS cluster",
		})
	}
	return out
}

func unknownInstances(f *Facts) (out []Finding) {
	for _, i := range f.Instances {
		if i.Owner == cloudprovider.Unknown {
			adopt := fmt.Sprintf("dovetail adopt --cluster-name %s %s --yes", f.ClusterName, i.ID)
			out = append(out, Finding{
				Object: "instance " + i.ID, Seen: fmt.Sprintf("%s, launched %s ago for NodeClaim %q", i.Type,
					f.Now.Sub(i.LaunchedAt).Round(time.Minute), i.NodeClaim),
				Remedy: "if it is a leftover of this cluster: " + adopt + "; else remove its tag karpenter.sh/nodepool", Command: adopt,
			})
		}
	}
	return out
}

func nodeChecks() []Check {
	return []Check{
		{
			ID: "nodes-late", Area: "nodes", Severity: Error, Title: "an instance runs and has not become a node",
			Why: "it costs money, and its pods wait", needs: []Fact{NodeClaims}, run: lateClaims,
		},
		{
			ID: "nodes-stuck-taint", Area: "nodes", Severity: Error, Title: "a startup taint stays on a node",
			Why: "no pod is scheduled to the node, and the node is not consolidated either", needs: []Fact{Nodes, NodeClaims}, run: stuckTaints,
		},
		{
			ID: "nodes-never-ready", Area: "nodes", Severity: Error, Title: "a node has registered and does not become Ready",
			Why:   "no pod is scheduled to it, it costs money, and other nodes may fail for the same cause",
			needs: []Fact{NodeClaims, Nodes}, run: neverReady,
		},
		{
			ID: "nodes-without-instance", Area: "nodes", Severity: Warning, Title: "a NodeClaim's instance is gone",
			Why: "its pods do not run", needs: []Fact{NodeClaims, Nodes, Instances}, run: claimsWithoutInstance,
		},
		{
			ID: "nodes-instance-without-claim", Area: "nodes", Severity: Warning, Title: "an instance of this cluster has no NodeClaim",
			Why: "it costs money and runs nothing", needs: []Fact{NodeClaims, Instances}, run: instancesWithoutClaim,
		},
	}
}

func lateClaims(f *Facts) (out []Finding) {
	for i := range f.NodeClaims {
		c := &f.NodeClaims[i]
		launched, _ := condition.Get(c, karpv1.ConditionLaunched)
		registered, _ := condition.Get(c, karpv1.ConditionRegistered)
		if c.DeletionTimestamp != nil || launched.Status != metav1.ConditionTrue || registered.Status == metav1.ConditionTrue {
			continue
		}
		age := f.Now.Sub(launched.LastTransitionTime.Time)
		named := !slices.Contains([]string{condition.ReasonAwaitingReconciliation, "NodeNotFound", ""}, registered.Reason)
		if age < overdue && !named {
			continue
		}
		message, remedy, _ := strings.Cut(registered.Message, cloudprovider.RemedySeparator)
		if remedy == "" {
			remedy = fmt.Sprintf(
				"kubectl describe nodeclaim %s; aws ec2 get-console-output --latest --output text --instance-id %s",
				c.Name,
				instanceID(c.Status.ProviderID),
			)
		}
		out = append(out, Finding{
			Object: "NodeClaim " + c.Name, Seen: fmt.Sprintf("launched %s ago, not joined: %s: %s", age.Round(time.Second), registered.Reason,
				message), Remedy: remedy,
		})
	}
	return out
}

func stuckTaints(f *Facts) (out []Finding) {
	claims := claimsByProvider(f)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		age := f.Now.Sub(n.CreationTimestamp.Time)
		claim := claims[n.Spec.ProviderID]
		if claim == nil || n.DeletionTimestamp != nil || n.Labels[karpv1.LabelInitialized] == "true" ||
			(age < overdue && !reportedStuck(claim)) {
			continue
		}
		// The last one first: its removal does not change the index of the others.
		for j, t := range slices.Backward(n.Spec.Taints) {
			if ready, _ := readiness(n); !ready && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable) {
				continue // it goes when the node is Ready, which another check covers
			}
			if owner := taintOwner(claim, &t); owner != "" {
				remove := removeTaint(n.Name, j, &t)
				out = append(out, Finding{
					Object: "Node " + n.Name, Seen: fmt.Sprintf("taint %s is still on the node after %s; %s must remove it", t.ToString(),
						age.Round(time.Second), owner),
					Remedy: fmt.Sprintf("check why %s does not remove it; to use the node at once: %s", owner, remove), Command: remove,
				})
			}
		}
	}
	return out
}

// neverReady finds nodes that have not been Ready since they registered.
func neverReady(f *Facts) (out []Finding) {
	claims := claimsByProvider(f)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		age := f.Now.Sub(n.CreationTimestamp.Time)
		claim := claims[n.Spec.ProviderID]
		ready, why := readiness(n)
		if claim == nil || ready || n.DeletionTimestamp != nil || n.Labels[karpv1.LabelInitialized] == "true" {
			continue
		}
		if initialized, _ := condition.Get(claim, karpv1.ConditionInitialized); age < overdue && initialized.Reason != "NodeNeverReady" {
			continue
		}
		out = append(out, Finding{
			Object: "Node " + n.Name, Seen: fmt.Sprintf("not Ready %s after its registration: %s", age.Round(time.Second), why),
			Remedy: "check the pods of the network plugin on it: kubectl get pods -A -o wide --field-selector spec.nodeName=" + n.Name,
		})
	}
	return out
}

// readiness reports whether a node is Ready, and its kubelet's reason and message.
func readiness(n *corev1.Node) (ready bool, why string) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.Reason + ": " + c.Message
		}
	}
	return false, "kubelet has reported no status"
}

// claimsByProvider returns the NodeClaims that have an instance, by provider ID.
func claimsByProvider(f *Facts) map[string]*karpv1.NodeClaim {
	claims := map[string]*karpv1.NodeClaim{}
	for i := range f.NodeClaims {
		if id := f.NodeClaims[i].Status.ProviderID; id != "" {
			claims[id] = &f.NodeClaims[i]
		}
	}
	return claims
}

// reportedStuck reports whether the controller, which knows how long taints usually stay, reports a stuck taint on the
// claim.
func reportedStuck(claim *karpv1.NodeClaim) bool {
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	return initialized.Reason == "TaintStuck"
}

// removeTaint returns the command that removes the taint at an index of the node's list, and fails if another taint is
// at that index by then. kubectl taint would write the whole list, and put back what another writer has removed
// meanwhile.
func removeTaint(node string, index int, t *corev1.Taint) string {
	at := fmt.Sprintf("/spec/taints/%d", index)
	return fmt.Sprintf(
		`kubectl patch node %s --type json -p '[{"op":"test","path":"%s/key","value":"%s"},{"op":"test","path":"%s/effect","value":"%s"},{"op":"remove","path":"%s"}]'`,
		node,
		at,
		t.Key,
		at,
		t.Effect,
		at,
	)
}

// taintOwner returns who removes a startup taint; empty if it is none.
func taintOwner(claim *karpv1.NodeClaim, t *corev1.Taint) string {
	if owner, known := snapshot.TaintOwner(t); known {
		return owner
	}
	if slices.ContainsFunc(claim.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(t) }) {
		return "the component that startup taint " + t.Key + " of its NodePool is for"
	}
	return ""
}

func claimsWithoutInstance(f *Facts) (out []Finding) {
	exists := map[string]bool{}
	for _, i := range f.Instances {
		exists[i.ID] = true
	}
	running := map[string]bool{}
	for i := range f.Nodes {
		running[f.Nodes[i].Spec.ProviderID], _ = readiness(&f.Nodes[i])
	}
	for i := range f.NodeClaims {
		c := &f.NodeClaims[i]
		id := instanceID(c.Status.ProviderID)
		if id == "" || exists[id] || c.DeletionTimestamp != nil || f.Now.Sub(c.CreationTimestamp.Time) < counterpartAge {
			continue
		}
		if running[c.Status.ProviderID] { // its kubelet reports: the claim's deletion would terminate it
			out = append(out, Finding{
				Object: "NodeClaim " + c.Name, Seen: "its node is Ready, and its instance " + id + " has lost the cluster's tags",
				Why: "nothing that reads instances by their tags knows the node",
				Remedy: fmt.Sprintf("tag it again: aws ec2 create-tags --resources %s --tags Key=%s%s,Value=%s",
					id, awsv1.TagClusterPrefix, f.ClusterName, awsv1.TagOwned),
			})
			continue
		}
		out = append(out, Finding{
			Object: "NodeClaim " + c.Name, Seen: "its instance " + id + " is gone, or has lost the cluster's tags",
			Remedy:  "the controller deletes the claim within two minutes",
			deletes: "; if it does not run: kubectl delete nodeclaim " + c.Name,
		})
	}
	return out
}

func instancesWithoutClaim(f *Facts) (out []Finding) {
	claimed := map[string]bool{}
	for i := range f.NodeClaims {
		claimed[instanceID(f.NodeClaims[i].Status.ProviderID)] = true
		claimed[f.NodeClaims[i].Name] = true
	}
	for _, i := range f.Instances {
		if i.Owner != cloudprovider.Ours || claimed[i.ID] || claimed[i.NodeClaim] || i.State == cloudprovider.ShuttingDown ||
			f.Now.Sub(i.LaunchedAt) < counterpartAge {
			continue
		}
		out = append(out, Finding{
			Object: "instance " + i.ID, Seen: fmt.Sprintf("%s, launched %s ago", i.Type, f.Now.Sub(i.LaunchedAt).Round(time.Minute)),
			Remedy:  "the controller terminates it within two minutes",
			deletes: "; if it does not run: aws ec2 terminate-instances --instance-ids " + i.ID,
		})
	}
	return out
}

func workloadChecks() []Check {
	return []Check{
		{
			ID: "workloads-blocking-pdb", Area: "workloads", Severity: Warning, Title: "a PodDisruptionBudget never allows an eviction",
			Why: "nodes with its pods are never consolidated, replaced or drained", needs: []Fact{PDBs}, run: blockingPDBs,
		},
		{
			ID: "workloads-overlapping-pdbs", Area: "workloads", Severity: Warning, Title: "a pod matches two PodDisruptionBudgets",
			Why: "the API server rejects every eviction of the pod, so its node never drains", needs: []Fact{PDBs, Pods}, run: overlappingPDBs,
		},
	}
}

func blockingPDBs(f *Facts) (out []Finding) {
	for i := range f.PDBs {
		b := &f.PDBs[i]
		if b.Status.ExpectedPods == 0 || !neverAllows(b) {
			continue
		}
		loosen := fmt.Sprintf(
			`kubectl -n %s patch poddisruptionbudget %s --type merge -p '{"spec":{"maxUnavailable":1,"minAvailable":null}}'`,
			b.Namespace,
			b.Name,
		)
		out = append(out, Finding{
			Object: "PodDisruptionBudget " + b.Namespace + "/" + b.Name, Seen: fmt.Sprintf("%d pods, of which %d must run", b.Status.ExpectedPods,
				b.Status.DesiredHealthy),
			Remedy: "allow one pod to be unavailable: " + loosen, Command: loosen,
		})
	}
	return out
}

// neverAllows reports whether a budget allows no eviction even when all pods are healthy.
func neverAllows(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.ObservedGeneration == b.Generation && b.Status.DesiredHealthy >= b.Status.ExpectedPods
}

func overlappingPDBs(f *Facts) (out []Finding) {
	reported := map[string]bool{}
	for _, p := range f.Pods {
		var names []string
		for j := range f.PDBs {
			b := &f.PDBs[j]
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err == nil && b.Namespace == p.Namespace && b.Spec.Selector != nil && selector.Matches(labels.Set(p.Labels)) {
				names = append(names, b.Name)
			}
		}
		key := p.Namespace + strings.Join(names, " ")
		if len(names) < 2 || reported[key] {
			continue
		}
		reported[key] = true
		slices.Sort(names)
		drop := fmt.Sprintf("kubectl -n %s delete poddisruptionbudget %s", p.Namespace, names[len(names)-1])
		out = append(out, Finding{
			Object: "Pod " + p.Namespace + "/" + p.Name, Seen: "it matches PodDisruptionBudgets " + strings.Join(names, " and "),
			Remedy: "keep one of them", deletes: ": " + drop, Command: drop,
		})
	}
	return out
}
