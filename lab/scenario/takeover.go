package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/incumbent"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	// perNodeApp is the workload with pods that each need a node.
	perNodeApp = "one-per-node"
	// al2023Image begins the names of the images that the alias al2023@latest stands for on amd64.
	al2023Image = "amazon-eks-node-al2023-x86_64-standard-"
)

// takenOver is how far the other controller has come with each of its NodeClaims when it goes.
var takenOver = []struct {
	node incumbent.Node
	upTo stage
}{
	{incumbent.Node{Pool: "default", InstanceType: "m5.large", CapacityType: "on-demand", Subnet: 0, CPU: "1"}, initialized},
	{incumbent.Node{Pool: "default", InstanceType: "c5.large", CapacityType: "spot", Subnet: 1, CPU: "1"}, initialized},
	{incumbent.Node{Pool: "default", InstanceType: "r5.large", CapacityType: "spot", Subnet: 2, CPU: "1"}, initialized},
	{incumbent.Node{Pool: "default", InstanceType: "m5.xlarge", CapacityType: "on-demand", Subnet: 1, CPU: "1"}, registered},
	{incumbent.Node{Pool: "default", InstanceType: "m5.large", CapacityType: "on-demand", Subnet: 2, CPU: "1"}, launched},
	{incumbent.Node{Pool: "default", InstanceType: "c5.large", CapacityType: "on-demand", Subnet: 0, CPU: "1"}, created},
}

// stage is how far a NodeClaim has come.
type stage int

const (
	created stage = iota
	launched
	registered
	initialized
)

// takeover starts the controller in a cluster with nodes that another controller of the same API has launched.
func takeover() Scenario {
	t := &takeoverRun{}
	pods := len(takenOver)
	return Scenario{
		Name: "takeover",
		Summary: fmt.Sprintf("%d NodeClaims of another Karpenter controller, at all stages: adopted; no restart, no termination, no drift mark",
			pods),
		Steps: []Step{
			{
				Name:    "another controller launches nodes: their pods run, and the controller goes while two are in flight",
				Timeout: time.Minute, PauseKills: true, Run: t.launchFleet,
			},
			{
				Name:    "start Dovetail, kill it while it adopts, start it again: all are adopted, all pods run, nothing is disturbed",
				Timeout: 90 * time.Second, PauseKills: true, Run: t.adopt,
			},
			{Name: "a change of the NodePool is drift of each adopted node, and its reversal ends it", Timeout: time.Minute, Run: t.drift},
			{
				Name:    fmt.Sprintf("scale to %d pods: Dovetail launches beside the adopted nodes", pods+2),
				Timeout: time.Minute, Run: func(ctx context.Context, w *World) error { return t.scale(ctx, w, pods+2) },
			},
			{
				Name:       "scale to 0, delete NodePool and EC2NodeClass: all nodes go, and only the other controller's launch templates are left, unchanged",
				Timeout:    time.Minute,
				PauseKills: true,
				Run:        t.deleteAll,
			},
		},
	}
}

// takeoverRun is one run of the scenario.
type takeoverRun struct {
	// templates are the other controller's launch templates by name, with all that EC2 states of them.
	templates map[string]string
	// profile is the instance profile of the other controller.
	profile string
}

// newIncumbent is the other controller in the scenario's cluster.
func newIncumbent(ctx context.Context, w *World) (*incumbent.Controller, error) {
	return incumbent.New(ctx, incumbent.Config{
		Kube: w.Client, EC2: w.EC2(), IAM: w.IAM(), EKS: w.EKS(), Region: w.Region(), Cluster: w.Name,
	})
}

// launchFleet has the other controller launch its nodes, each up to its stage.
func (t *takeoverRun) launchFleet(ctx context.Context, w *World) error {
	other, err := newIncumbent(ctx, w)
	if err != nil {
		return err
	}
	if err := apply(ctx, w, manifests.Takeover, map[string]string{"GENERATION": "1", "BUDGET": "100%"}); err != nil {
		return err
	}
	image, err := w.ImageID(ctx, al2023Image+other.Version()+"-v")
	if err != nil {
		return err
	}
	if err := other.Prepare(ctx, "default", image); err != nil {
		return err
	}
	var names []string
	for _, n := range takenOver {
		claim, err := other.Create(ctx, n.node)
		if err != nil {
			return err
		}
		names = append(names, claim.GetName())
		if n.upTo < launched {
			continue
		}
		if err := other.Launch(ctx, claim, n.node); err != nil {
			return err
		}
	}
	for i, n := range takenOver {
		if n.upTo >= registered {
			if err := world.Until(ctx, func() error { return other.Register(ctx, names[i]) }); err != nil {
				return err
			}
		}
		if n.upTo >= initialized {
			if err := world.Until(ctx, func() error { return other.Initialize(ctx, names[i]) }); err != nil {
				return err
			}
		}
	}
	if err := apply(ctx, w, manifests.OnePerNode, map[string]string{"REPLICAS": fmt.Sprint(len(takenOver))}); err != nil {
		return err
	}
	if t.templates, err = launchTemplates(ctx, w); err != nil {
		return err
	}
	class := &awsv1.EC2NodeClass{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: "default"}, class); err != nil {
		return err
	}
	t.profile = class.Status.InstanceProfile
	return awaitSomeRunning(ctx, w, perNodeApp, len(takenOver)-2)
}

// awaitSomeRunning waits until this many pods of an app run. The others have no node.
func awaitSomeRunning(ctx context.Context, w *World, app string, want int) error {
	return world.Until(ctx, func() error {
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		if all = slices.DeleteFunc(all, func(p corev1.Pod) bool { return !running(p) }); len(all) != want {
			return fmt.Errorf("%d pods of %s run, want %d", len(all), app, want)
		}
		return nil
	})
}

// launchTemplates are the launch templates of the cluster by name, with all that EC2 states of them, as text.
func launchTemplates(ctx context.Context, w *World) (map[string]string, error) {
	out := map[string]string{}
	pages := ec2.NewDescribeLaunchTemplatesPaginator(w.EC2(), &ec2.DescribeLaunchTemplatesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list launch templates: %w", err)
		}
		for _, t := range page.LaunchTemplates {
			var tags []string
			for _, tag := range t.Tags {
				tags = append(tags, aws.ToString(tag.Key)+"="+aws.ToString(tag.Value))
			}
			slices.Sort(tags)
			out[aws.ToString(t.LaunchTemplateName)] = fmt.Sprintf(
				"%s version %d, %v", aws.ToString(t.LaunchTemplateId), aws.ToInt64(t.LatestVersionNumber), tags)
		}
	}
	return out, nil
}

// adopt starts the controller, kills it at three points of its adoption, and waits until all is adopted.
func (t *takeoverRun) adopt(ctx context.Context, w *World) error {
	watch, err := watchUndisturbed(ctx, w, perNodeApp)
	if err != nil {
		return err
	}
	before := len(w.Instances())
	if err := killInTurn(ctx, w, []killPoint{
		{name: "its first change in AWS has taken effect", nth: 1, call: adopts},
		{name: "its next change in AWS has taken effect", nth: 1, call: adopts},
		{name: "a NodeClaim has a hash of its own version", nth: 1, object: rehashed},
	}, func() error { return w.LaunchController(ctx) }); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, perNodeApp, len(takenOver)); err != nil {
		return err
	}
	if err := world.Until(ctx, func() error { return t.adopted(ctx, w) }); err != nil {
		return err
	}
	// A NodeClaim that the other controller has created and not launched names no pods. A pass that comes before its launch may plan
	// a node for its pod as well, which is then removed as empty.
	switch n := len(w.Instances()) - before; n {
	case 1:
	case 2:
		w.Note("one more node was launched for the pod of the NodeClaim without an instance, and removed")
	default:
		err = fmt.Errorf("%d instances were launched, want that of the NodeClaim that had none, and at most one more", n)
	}
	return errors.Join(err, watch.end(ctx, w), awaitPaired(ctx, w))
}

// adopts matches the calls of an adoption: an instance is tagged, or launched for the NodeClaim that has none.
func adopts(c awsim.Call) bool {
	return controllerCall("CreateTags")(c) || controllerCall("CreateFleet")(c)
}

// rehashed matches a NodeClaim with a hash of Dovetail's version.
func rehashed(o client.Object) bool {
	claim, ok := o.(*karpv1.NodeClaim)
	return ok && claim.Annotations[karpv1.AnnotationNodePoolHashVersion] == karpv1.NodePoolHashVersion
}

// adopted checks that every NodeClaim is adopted, and that the EC2NodeClass keeps its instance profile.
func (t *takeoverRun) adopted(ctx context.Context, w *World) error {
	if err := adoptedAll(ctx, w, len(takenOver)); err != nil {
		return err
	}
	class := &awsv1.EC2NodeClass{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: "default"}, class); err != nil {
		return err
	}
	if class.Status.InstanceProfile != t.profile {
		return fmt.Errorf("EC2NodeClass default uses instance profile %q now, before %q", class.Status.InstanceProfile, t.profile)
	}
	return nil
}

// adoptedAll checks that there are this many NodeClaims, all ready and with Dovetail's hashes, and that every instance has the
// identity of the cluster.
func adoptedAll(ctx context.Context, w *World, want int) error {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	if len(claims.Items) != want {
		return fmt.Errorf("there are %d NodeClaims, want %d", len(claims.Items), want)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		switch {
		case !condition.IsTrue(c, karpv1.ConditionReady):
			return fmt.Errorf("NodeClaim %s is not ready", c.Name)
		case !rehashed(c), c.Annotations[awsv1.AnnotationNodeClassHashVersion] != awsv1.NodeClassHashVersion:
			return fmt.Errorf("NodeClaim %s has hashes of another version", c.Name)
		}
	}
	for _, i := range w.Running() {
		if i.Tags[awsv1.TagClusterUID] == "" || i.Tags[world.NodeClaimTag] == "" {
			return fmt.Errorf("instance %s has no tag %s or %s", i.ID, awsv1.TagClusterUID, world.NodeClaimTag)
		}
	}
	return nil
}

// drift changes a label of the NodePool's template while its budget allows no disruption, and changes it back. A surplus node, launched
// before it was known what an adopted NodeClaim has, goes before.
func (t *takeoverRun) drift(ctx context.Context, w *World) error {
	for _, change := range []struct {
		generation, budget string
		drifted            int
	}{{"1", "100%", 0}, {"2", "0", len(takenOver)}, {"1", "0", 0}, {"1", "100%", 0}} {
		if err := apply(ctx, w, manifests.Takeover, map[string]string{"GENERATION": change.generation, "BUDGET": change.budget}); err != nil {
			return err
		}
		if err := world.Until(ctx, func() error { return countDrifted(ctx, w, change.drifted) }); err != nil {
			return err
		}
	}
	return nil
}

func countDrifted(ctx context.Context, w *World, want int) error {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	n := 0
	for i := range claims.Items {
		if condition.IsTrue(&claims.Items[i], karpv1.ConditionDrifted) {
			n++
		}
	}
	if n != want || len(claims.Items) != len(takenOver) {
		return fmt.Errorf("%d of %d NodeClaims have drifted, want %d of %d", n, len(claims.Items), want, len(takenOver))
	}
	return nil
}

// scale scales the workload, and waits until there is a node for each pod, and no other.
func (t *takeoverRun) scale(ctx context.Context, w *World, replicas int) error {
	if err := w.Scale(ctx, perNodeApp, int32(replicas)); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, perNodeApp, replicas); err != nil {
		return err
	}
	if err := world.Until(ctx, func() error {
		if n := len(w.Running()); n != replicas {
			return fmt.Errorf("%d instances run, want %d", n, replicas)
		}
		return nil
	}); err != nil {
		return err
	}
	return awaitPaired(ctx, w)
}

// deleteAll deletes everything, and checks what is left.
func (t *takeoverRun) deleteAll(ctx context.Context, w *World) error {
	if err := w.Scale(ctx, perNodeApp, 0); err != nil {
		return err
	}
	if err := awaitEmpty(ctx, w, perNodeApp); err != nil {
		return err
	}
	text, err := render(w, manifests.Takeover, map[string]string{"GENERATION": "1", "BUDGET": "100%"})
	if err != nil {
		return err
	}
	if err := w.Delete(ctx, text); err != nil {
		return err
	}
	var names []string
	for name := range t.templates {
		names = append(names, "launch template "+name)
	}
	slices.Sort(names)
	if err := world.Until(ctx, func() error {
		left, err := w.LeftInAWS(ctx)
		slices.Sort(left)
		if err == nil && !slices.Equal(left, names) {
			err = fmt.Errorf("left: %s; want %s", strings.Join(left, ", "), strings.Join(names, ", "))
		}
		return err
	}); err != nil {
		return err
	}
	if now, err := launchTemplates(ctx, w); err != nil || !maps.Equal(now, t.templates) {
		return errors.Join(err, fmt.Errorf("the launch templates of the other controller changed: %v, before %v", now, t.templates))
	}
	w.Note("%d launch templates without the identity of the cluster are left", len(names))
	return nil
}
