package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// reportWithin is how soon after a launch the controller must report why its node does not join.
const reportWithin = time.Minute

// remedyAndRun applies the remedy of a condition, and waits until all pods of an app run, without a controller restart.
func remedyAndRun(app string, pods int, remedy *string) Step {
	return Step{
		Name: fmt.Sprintf("apply the condition's remedy: %d pods run, without a controller restart", pods), Timeout: reportWithin, Exact: true,
		Run: func(ctx context.Context, w *World) error {
			begin := time.Now()
			if err := applyRemedy(ctx, w, *remedy); err != nil {
				return err
			}
			if err := awaitPodsRunning(ctx, w, app, pods); err != nil {
				return err
			}
			w.Note("from the role mapped to %d pods running: %.1f s", pods, time.Since(begin).Seconds())
			if n := w.ControllerStarts(); n != 1 {
				return fmt.Errorf("the controller was started %d times", n)
			}
			return nil
		},
	}
}

// roleNotMapped removes the mapping of the node role: before the first launch, and again after nodes of the class
// joined.
func roleNotMapped() Scenario {
	const app = "sample"
	const cause = "NodeRoleNotMapped"
	var remedy string
	return Scenario{
		Name:    "role-not-mapped",
		Summary: "the node role is not mapped: reported before the first launch, and within a minute of a later one; after the mapping, pods run",
		Steps: []Step{
			{Name: "delete the node role's access entry", Timeout: 10 * time.Second, Run: unmapNodeRole},
			startController(),
			{
				Name: "create NodePool and EC2NodeClass: Ready=False has the cause and the remedy", Timeout: reportWithin, Exact: true,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Default, nil); err != nil {
						return err
					}
					message, err := awaitClassReason(ctx, w, cause)
					remedy = message
					return err
				},
			},
			{
				Name: "create pods: their events have the cause, and no instance is launched", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
						return err
					}
					if err := awaitPodEvents(ctx, w, app, cause, 1); err != nil {
						return err
					}
					if n := len(w.Instances()); n > 0 {
						return fmt.Errorf("%d instances were launched", n)
					}
					return nil
				},
			},
			remedyAndRun(app, 1, &remedy),
			{
				Name:    "delete the mapping again and create more pods: the one new instance does not join, and its NodeClaim has the cause",
				Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := unmapNodeRole(ctx, w); err != nil {
						return err
					}
					if err := w.Scale(ctx, app, 2); err != nil {
						return err
					}
					return awaitClaimReason(ctx, w, cause)
				},
			},
			{
				Name: "create still more pods: no other instance is launched", Timeout: 40 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					message, err := awaitClassReason(ctx, w, cause)
					if err != nil {
						return err
					}
					remedy = message
					if err := w.Scale(ctx, app, 60); err != nil {
						return err
					}
					if err := awaitPodEvents(ctx, w, app, cause, 58); err != nil {
						return err
					}
					return launchedAtMost(w, 2)
				},
			},
			remedyAndRun(app, 60, &remedy),
			deleteAll(app, manifests.Default),
		},
	}
}

// controllerRoleMapped maps the controller's role where the nodes' role belongs.
func controllerRoleMapped() Scenario {
	const app = "sample"
	const cause = "ControllerRoleMappedInstead"
	var remedy string
	return Scenario{
		Name:    "controller-role-mapped-instead",
		Summary: "the controller's role is mapped in place of the node role: the condition names both, and no instance is launched",
		Steps: []Step{
			{
				Name: "replace the node role's access entry by one for the controller's role", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := unmapNodeRole(ctx, w); err != nil {
						return err
					}
					_, err := w.EKS().CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
						ClusterName: &w.Name, PrincipalArn: aws.String(roleARN(awsim.ControllerRole(w.Name))), Type: aws.String("EC2_LINUX"),
					})
					return err
				},
			},
			startController(),
			{
				Name:    "create NodePool, EC2NodeClass and pods: conditions and events have the cause, and no instance is launched",
				Timeout: reportWithin, Exact: true,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Default, nil); err != nil {
						return err
					}
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "2"}); err != nil {
						return err
					}
					message, err := awaitClassReason(ctx, w, cause)
					if err != nil {
						return err
					}
					remedy = message
					for _, role := range []string{awsim.ControllerRole(w.Name), awsim.NodeRole(w.Name)} {
						if !strings.Contains(message, role) {
							return fmt.Errorf("the condition does not name role %s: %s", role, message)
						}
					}
					if err := awaitPodEvents(ctx, w, app, cause, 2); err != nil {
						return err
					}
					if n := len(w.Instances()); n > 0 {
						return fmt.Errorf("%d instances were launched", n)
					}
					return nil
				},
			},
			{
				Name: "apply the condition's remedy: the pods run", Timeout: reportWithin, Exact: true,
				Run: func(ctx context.Context, w *World) error {
					if err := applyRemedy(ctx, w, remedy); err != nil {
						return err
					}
					return awaitPodsRunning(ctx, w, app, 2)
				},
			},
			deleteAll(app, manifests.Default),
		},
	}
}

// labAccount is the AWS account ID of every world.
const labAccount = "111122223333"

func roleARN(name string) string { return "arn:aws:iam::" + labAccount + ":role/" + name }

// unmapNodeRole deletes the access entry of the node role.
func unmapNodeRole(ctx context.Context, w *World) error {
	_, err := w.EKS().DeleteAccessEntry(
		ctx,
		&eks.DeleteAccessEntryInput{ClusterName: &w.Name, PrincipalArn: aws.String(roleARN(awsim.NodeRole(w.Name)))},
	)
	return err
}

// launchedAtMost checks how many instances were ever launched.
func launchedAtMost(w *World, most int) error {
	if n := len(w.Instances()); n > most {
		return fmt.Errorf("%d instances were launched, want at most %d", n, most)
	}
	return nil
}

// awaitClassReason waits until every EC2NodeClass has Ready=False with this reason, and returns the message of the
// last.
func awaitClassReason(ctx context.Context, w *World, cause string) (message string, err error) {
	err = world.Until(ctx, func() error {
		var classes awsv1.EC2NodeClassList
		if err := list(ctx, w, &classes); err != nil {
			return err
		}
		if len(classes.Items) == 0 {
			return errors.New("there is no EC2NodeClass")
		}
		for _, c := range classes.Items {
			ready := findCondition(c.Status.Conditions, awsv1.ConditionReady)
			if ready.Status != metav1.ConditionFalse || ready.Reason != cause {
				return fmt.Errorf("EC2NodeClass %s: Ready=%s %s %s, want False for %s", c.Name, ready.Status, ready.Reason, ready.Message, cause)
			}
			message = ready.Message
		}
		return nil
	})
	return message, err
}

// awaitClaimReason waits until a NodeClaim has Registered=Unknown with this reason, and notes how long after its launch
// that was.
func awaitClaimReason(ctx context.Context, w *World, cause string) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		last := errors.New("no NodeClaim is unregistered")
		for _, c := range claims.Items {
			registered, launched := findCondition(
				c.Status.Conditions,
				karpv1.ConditionRegistered,
			), findCondition(
				c.Status.Conditions,
				karpv1.ConditionLaunched,
			)
			if registered.Status == metav1.ConditionTrue {
				continue
			}
			if registered.Reason != cause {
				last = fmt.Errorf(
					"NodeClaim %s: Registered=%s %s %s, want Unknown for %s",
					c.Name,
					registered.Status,
					registered.Reason,
					registered.Message,
					cause,
				)
				continue
			}
			after := time.Since(launched.LastTransitionTime.Time)
			w.Note("reported %.0f s after the launch", after.Seconds())
			if after > reportWithin {
				return fmt.Errorf("NodeClaim %s: the cause was reported %v after the launch, which is late", c.Name, after)
			}
			return nil
		}
		return last
	})
}

func findCondition(conditions []metav1.Condition, typ string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == typ {
			return c
		}
	}
	return metav1.Condition{Status: "absent"}
}

// awaitPodEvents waits until at least want pods of an app have no node, and each has an event that contains the cause.
func awaitPodEvents(ctx context.Context, w *World, app, cause string, want int) error {
	return world.Until(ctx, func() error {
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		var events corev1.EventList
		if err := list(ctx, w, &events); err != nil {
			return err
		}
		waiting := 0
		for _, p := range all {
			if p.Spec.NodeName != "" {
				continue
			}
			waiting++
			if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return e.InvolvedObject.UID == p.UID && strings.Contains(e.Message, cause)
			}) {
				return fmt.Errorf("no event of pod %s contains %s", p.Name, cause)
			}
		}
		if waiting < want {
			return fmt.Errorf("%d pods of %s have no node, want %d", waiting, app, want)
		}
		return nil
	})
}

// applyRemedy runs the `aws eks` commands of a remedy as the account's administrator.
func applyRemedy(ctx context.Context, w *World, remedy string) error {
	ran := 0
	for _, part := range strings.Split(remedy, "aws eks ")[1:] {
		part, _, _ = strings.Cut(part, "&&")
		words := strings.Fields(part)
		flags := map[string]string{}
		for i := 1; i+1 < len(words); i += 2 {
			flags[words[i]] = words[i+1]
		}
		cluster, principal := flags["--cluster-name"], flags["--principal-arn"]
		if flags["--region"] != w.Region() {
			return fmt.Errorf("aws eks %s: the region is not %s", part, w.Region())
		}
		var err error
		switch words[0] {
		case "create-access-entry":
			_, err = w.EKS().CreateAccessEntry(
				ctx,
				&eks.CreateAccessEntryInput{ClusterName: &cluster, PrincipalArn: &principal, Type: aws.String(flags["--type"])},
			)
		case "delete-access-entry":
			_, err = w.EKS().DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: &cluster, PrincipalArn: &principal})
		default:
			err = fmt.Errorf("the scenario does not know the command aws eks %s", words[0])
		}
		if err != nil {
			return fmt.Errorf("run the remedy (%s): %w", part, err)
		}
		ran++
	}
	if ran == 0 {
		return fmt.Errorf("the remedy has no aws eks command: %s", remedy)
	}
	return nil
}
