package join

import (
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// taintScope is the scope of nodes of a class that wait for a taint. An initialized node closes it; one that has only
// joined proves nothing.
func taintScope(class string) string { return "taint/" + class }

// poolTaintScope is the scope of nodes of a pool and class that wait for a taint. An initialized node of the pool closes it:
// those of other pools may not have the taint, or its owner may not reach the nodes of this one.
func poolTaintScope(pool, class string) string { return "taint/" + class + "/" + pool }

// notReadyScope is the scope of nodes of a pool and class that register and never become Ready. An initialized node
// closes it.
func notReadyScope(pool, class string) string { return "not-ready/" + class + "/" + pool }

// joinScope is the scope of nodes of a pool and class that do not join, for a cause that is not certain. A node that
// joins closes it.
func joinScope(pool, class string) string { return "join/" + class + "/" + pool }

// scoper knows what instances of a class share.
type scoper interface {
	JoinScopes(class *awsv1.EC2NodeClass) []string
}

// classScopes are the scopes that may hold back every launch of the class.
func classScopes(s scoper, class *awsv1.EC2NodeClass) []string {
	return slices.Concat(s.JoinScopes(class), []string{taintScope(class.Name)})
}

// poolScopes are the scopes that may hold back the launches of a pool alone.
func poolScopes(pool, class string) []string {
	return []string{poolTaintScope(pool, class), notReadyScope(pool, class), joinScope(pool, class)}
}

// launchScopes are the scopes that may hold back the launch of a claim.
func launchScopes(s scoper, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) []string {
	return slices.Concat(classScopes(s, class), poolScopes(claim.Labels[karpv1.LabelNodePool], class.Name))
}
