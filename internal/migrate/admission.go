package migrate

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// What admission may reject, in the words of results.
const (
	WritesOfClaims  = "writes of NodePools and NodeClaims"
	WritesOfClasses = "writes of EC2NodeClasses"
	WritesOfNodes   = "writes of Nodes"
	Evictions       = "evictions"
	Deletions       = "deletions of pods"
	WritesOfLease   = "writes of the leader lease"
	WritesOfPods    = "the creation of Dovetail's own pods"
)

// checkWebhooks finds webhooks that reject what Dovetail writes: those without a backend, and those of Karpenter itself. Of admission
// policies, it finds also those with expressions that a person has to read.
func checkWebhooks(f *Facts) (out []Result, _ string) {
	k := f.Karpenter()
	seen := map[string]bool{}
	for _, what := range slices.Sorted(maps.Keys(f.Webhooks)) {
		for _, w := range f.Webhooks[what] {
			backend := w.Unreachable
			if backend == "" && k.backs(w) {
				backend = fmt.Sprintf("its service %s/%s is Karpenter, which is stopped", w.Namespace, w.Service)
			}
			if backend == "" || seen[w.Configuration+w.Name] {
				continue
			}
			seen[w.Configuration+w.Name] = true
			status := Obstacle
			if w.Selective { // it may be about objects that Dovetail does not write
				status = Warning
			}
			out = append(out, Result{
				Status: status, Object: w.Configuration, Field: "webhooks[" + w.Name + "].failurePolicy",
				Seen:   fmt.Sprintf("it must approve %s, and %s", what, backend),
				Remedy: "delete it, or repair its backend: kubectl delete " + w.Configuration,
			})
		}
	}
	if why := f.missing([]doctor.Fact{Policies}); why != "" {
		out = append(out, Result{Status: NotChecked, Seen: why})
	}
	return append(out, f.policies()...), "each webhook that must approve what Dovetail writes has a backend other than Karpenter"
}

// policies are results about admission policies. Those of pods are common, and mostly about what Dovetail's chart has right: of them, only
// the ones that certainly refuse are reported.
func (f *Facts) policies() (out []Result) {
	account := "its ServiceAccount"
	if k := f.Karpenter(); k != nil {
		account = "ServiceAccount " + k.Namespace + "/" + k.ServiceAccount
	}
	seen := map[string]bool{}
	for _, what := range slices.Sorted(maps.Keys(f.Policies)) {
		common := slices.Contains([]string{Deletions, WritesOfPods}, what)
		for _, p := range f.Policies[what] {
			if seen[p.Configuration] || p.Refuses == "" && common {
				continue
			}
			seen[p.Configuration] = true
			result := Result{
				Status: Warning, Object: p.Configuration, Field: "spec.validations",
				Seen:   fmt.Sprintf("it may reject %s: its expressions were not evaluated", what),
				Remedy: "check that it accepts them from " + account + ", without Karpenter's name in the user agent or field manager",
			}
			if p.Mutates {
				result.Field, result.Seen = "spec.mutations", "it may change "+what+": its expressions were not evaluated"
				result.Remedy = "check that what it changes is no field that Dovetail or its node classes set"
			}
			if p.Refuses != "" {
				result.Seen = fmt.Sprintf("it rejects %s: %s", what, p.Refuses)
				result.Remedy = "delete it, or repair it: kubectl delete " + p.Configuration
				if !p.Selective {
					result.Status = Obstacle
				}
			}
			out = append(out, result)
		}
	}
	return out
}

// backs reports whether the installation is the backend of a webhook.
func (i *Installation) backs(w apiserver.Webhook) bool {
	return i != nil && w.Namespace == i.Namespace && len(w.Selector) > 0 &&
		labels.SelectorFromSet(w.Selector).Matches(labels.Set(i.deployment.Spec.Template.Labels))
}
