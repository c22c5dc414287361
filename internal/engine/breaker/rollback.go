package breaker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// PoolHistory is what is known of a pool that rolls out with canaries.
type PoolHistory struct {
	Pool *karpv1.NodePool
	History
}

// The reasons of the condition RolledBack.
const (
	RolledBackToKnownGood  = "NewNodesFail"
	rollbackNothingKnown   = "NothingKnownGood"
	rollbackSameImages     = "ImagesUnchanged"
	rollbackOtherTemplate  = "TemplateChanged"
	rollbackSomeSurvive    = "SomeNodesSurvive"
	rollbackWorksElsewhere = "WorksElsewhere"
	rollbackUnavailable    = "ImagesNotAvailable"
)

// Outlook is what to do about the images of a class.
type Outlook struct {
	// Good and Rollback are annotations to write; nil for no change. Void removes the rollback.
	Good     *awsv1.KnownGood
	Rollback *awsv1.Rollback
	Void     bool
	// Rolled is true if the class uses images that are known to be good. Else Reason, if it is not empty, is why that is not possible.
	Rolled          bool
	Reason, Message string
	// Next is when to look again; zero for not before something changes.
	Next time.Time
}

// failing is a pool with new nodes that fail.
type failing struct {
	pool       *PoolHistory
	image, why string
	some       bool // others of the image have survived, as many as have failed
}

// RollbackOf returns what to do about the images of a class, from what the pools of the class that roll out with canaries have shown. A
// rollback replaces images only: where the template has changed, too, or where the images work in another pool, it only explains.
func RollbackOf(class *awsv1.EC2NodeClass, pools []PoolHistory, now time.Time) Outlook {
	slices.SortFunc(pools, func(a, b PoolHistory) int { return cmp.Compare(a.Pool.Name, b.Pool.Name) })
	uses := awsv1.ImageIDs(class.Status.AMIs)
	good, known := class.KnownGood()
	if decision, rolled := class.Rollback(); rolled {
		return rolledBack(class, decision, now)
	}
	void := class.Annotations[awsv1.AnnotationRollback] != "" // of another generation
	f := firstFailing(pools, uses)
	if f == nil {
		return Outlook{Void: void, Good: knownGood(class, pools, now)}
	}
	no := func(reason, why string) Outlook {
		return Outlook{Void: void, Reason: reason, Message: fmt.Sprintf(
			"The roll-out in NodePool %s is paused and not rolled back: %s. The old nodes stay. %s", f.pool.Pool.Name, why, f.why)}
	}
	elsewhere := slices.IndexFunc(pools, func(p PoolHistory) bool {
		return p.Pool.Name != f.pool.Pool.Name && (p.Rollout != nil && p.Rollout.Survived > 0 && slices.Equal(p.Rollout.Images, uses) ||
			p.Good != nil && slices.Equal(p.Good.Images, uses))
	})
	switch {
	case !known:
		return no(rollbackNothingKnown, "no images of the EC2NodeClass have survived a soak before")
	case slices.Equal(awsv1.ImageIDs(good.AMIs), uses):
		return no(rollbackSameImages,
			"the images are those that are known to be good. What has changed is the NodePool or the EC2NodeClass: undo that")
	case !sameTemplate(f.pool.Pool, class, good):
		return no(rollbackOtherTemplate,
			"more than the images has changed since they were known to be good, so that no exact rollback is possible. Undo the edit")
	case f.some:
		return no(rollbackSomeSurvive, "as many new nodes have survived as have failed")
	case elsewhere >= 0:
		return no(rollbackWorksElsewhere, "nodes of NodePool "+pools[elsewhere].Pool.Name+" work with the same images")
	}
	return Outlook{Void: void, Rollback: &awsv1.Rollback{
		From: uses, Generation: class.Generation, At: truncated(now), NodePool: f.pool.Pool.Name, Why: f.why,
	}, Next: now.Add(awsv1.RollbackPatience)}
}

// rolledBack is the outlook of a class with a rollback that holds for its generation.
func rolledBack(class *awsv1.EC2NodeClass, decision awsv1.Rollback, now time.Time) Outlook {
	good, known := class.KnownGood()
	uses := awsv1.ImageIDs(class.Status.AMIs)
	patience := decision.At.Add(awsv1.RollbackPatience)
	switch {
	case known && slices.Equal(uses, awsv1.ImageIDs(good.AMIs)):
		return Outlook{Rolled: true, Reason: RolledBackToKnownGood, Message: fmt.Sprintf(
			"Images %v are used in place of %v, since new nodes of NodePool %s failed. Nodes that failed are replaced. "+
				"This holds until the spec of the EC2NodeClass changes or it selects other images. To try the images again, run "+
				"`kubectl annotate ec2nodeclass %s %s-`. %s",
			uses, decision.From, decision.NodePool, class.Name, awsv1.AnnotationRollback, decision.Why)}
	case !known || !slices.Equal(uses, decision.From):
		return Outlook{Void: true}
	case now.Before(patience):
		return Outlook{Next: patience}
	}
	return Outlook{Reason: rollbackUnavailable, Message: fmt.Sprintf(
		"The roll-out in NodePool %s cannot be rolled back: EC2 no longer has images %v, which are known to be good. The old nodes stay. %s",
		decision.NodePool, awsv1.ImageIDs(good.AMIs), decision.Why)}
}

// firstFailing is the first pool with new nodes of an image in use that fail; nil if there is none.
func firstFailing(pools []PoolHistory, uses []string) *failing {
	for i := range pools {
		p := &pools[i]
		if image, fail := p.NewNodesFail(); fail && slices.Contains(uses, image) {
			return &failing{p, image, p.canaryFaults(p.Pool.Name, p.Pool.Spec.Template.Spec.NodeClassRef.Name), 2*p.Soaks.Failed <= p.Soaks.Of}
		}
		if !slices.Contains(p.Paused(), karpv1.DisruptionDrifted) {
			continue
		}
		r := p.Reasons[karpv1.DisruptionDrifted]
		if image := r.lastImage(); slices.Contains(uses, image) {
			return &failing{p, image, r.failures(karpv1.DisruptionDrifted), 2*r.failed() <= len(r.Outcomes)}
		}
	}
	return nil
}

// lastImage is that of the last claim that has failed.
func (r *Record) lastImage() string {
	image := ""
	for _, o := range r.Outcomes {
		if o.Failed() {
			image = o.Image
		}
	}
	return image
}

// knownGood is what to record as known to be good; nil if that is recorded, or nothing new is known.
func knownGood(class *awsv1.EC2NodeClass, pools []PoolHistory, now time.Time) *awsv1.KnownGood {
	uses, hash := awsv1.ImageIDs(class.Status.AMIs), class.Annotations[awsv1.AnnotationNodeClassHash]
	out := awsv1.KnownGood{AMIs: class.Status.AMIs, Hash: hash, Pools: map[string]string{}, Since: truncated(now)}
	before, known := class.KnownGood()
	known = known && before.Hash == hash && slices.Equal(awsv1.ImageIDs(before.AMIs), uses)
	for i := range pools {
		p := &pools[i]
		if p.Rollout != nil {
			return nil
		}
		// A template that has changed since has another hash than the one that is recorded.
		if template, recorded := before.Pools[p.Pool.Name]; known && recorded {
			out.Pools[p.Pool.Name] = template
		}
		if p.Good != nil && slices.Equal(p.Good.Images, uses) && p.Good.Class == hash {
			out.Pools[p.Pool.Name] = p.Good.Pool
		}
	}
	if len(out.Pools) == 0 || known && maps.Equal(before.Pools, out.Pools) {
		return nil
	}
	return &out
}
