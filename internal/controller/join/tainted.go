package join

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// enoughStuck is how many nodes of a class wait for a taint at a time before no more are bought: the first is replaced
// once, since it may be its own fault.
const enoughStuck = 2

// atWork is for how long a node that was initialized shows that whoever removes the taints of its class does. With hundreds of nodes at
// a time it may well take longer over one than that node is given, and buys nothing from being spared launches.
const atWork = time.Minute

// taintScope is what nodes of a class have in common that wait for a taint. It is closed by a node that is initialized;
// one that has only joined proves nothing.
func taintScope(class *awsv1.EC2NodeClass) string { return "taint/" + class.Name }

// scoper knows what instances of a class have in common.
type scoper interface {
	JoinScopes(class *awsv1.EC2NodeClass) []string
}

// launchScopes are all that may hold a launch of the class back.
func launchScopes(s scoper, class *awsv1.EC2NodeClass) []string {
	return append(s.JoinScopes(class), taintScope(class))
}

// tainted follows a claim that has joined until it is initialized.
func (r *Reconciler) tainted(claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) {
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	stuck := initialized.Reason == cluster.ReasonTaintStuck && claim.DeletionTimestamp == nil
	r.mu.Lock()
	if r.stuck == nil {
		r.stuck = map[types.UID]string{}
	}
	delete(r.stuck, claim.UID)
	if stuck {
		r.stuck[claim.UID] = class.Name
	}
	if r.untainted == nil {
		r.untainted = map[string]time.Time{}
	}
	if at := initialized.LastTransitionTime.Time; initialized.Status == metav1.ConditionTrue && at.After(r.untainted[class.Name]) {
		r.untainted[class.Name] = at
	}
	slow := r.Now().Sub(r.untainted[class.Name]) < atWork
	n := 0
	for _, name := range r.stuck {
		if name == class.Name {
			n++
		}
	}
	r.mu.Unlock()
	if initialized.Status == metav1.ConditionTrue {
		r.Breakers.Joined([]string{taintScope(class)}, initialized.LastTransitionTime.Time)
		return
	}
	if !stuck {
		return
	}
	r.count(claim, cluster.ReasonTaintStuck)
	if n >= enoughStuck && !slow {
		r.Breakers.Report(cloud.Finding{
			Cause: cluster.ReasonTaintStuck, Certainty: cloud.Certain, Scope: taintScope(class), Message: initialized.Message,
		})
	}
	r.Breakers.Failed(claim.UID)
}
