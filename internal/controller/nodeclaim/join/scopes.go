package join

import (
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// taintScope is what nodes of a class have in common that wait for a taint. It is closed by a node that is initialized;
// one that has only joined proves nothing.
func taintScope(class string) string { return "taint/" + class }

// notReadyScope is what nodes of a pool and class have in common that register and never become Ready. It is closed by a node that is
// initialized.
func notReadyScope(pool, class string) string { return "not-ready/" + class + "/" + pool }

// joinScope is what nodes of a pool and class have in common that do not join, for a cause that is not certain. It is closed by a
// node that joins.
func joinScope(pool, class string) string { return "join/" + class + "/" + pool }

// scoper knows what instances of a class have in common.
type scoper interface {
	JoinScopes(class *awsv1.EC2NodeClass) []string
}

// classScopes are all that may hold back every launch of the class.
func classScopes(s scoper, class *awsv1.EC2NodeClass) []string {
	return slices.Concat(s.JoinScopes(class), []string{taintScope(class.Name)})
}

// poolScopes are all that may hold back the launches of a pool alone.
func poolScopes(pool, class string) []string {
	return []string{notReadyScope(pool, class), joinScope(pool, class)}
}

// launchScopes are all that may hold back the launch of a claim.
func launchScopes(s scoper, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) []string {
	return slices.Concat(classScopes(s, class), poolScopes(claim.Labels[karpv1.LabelNodePool], class.Name))
}
