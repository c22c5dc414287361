package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// taintGracePeriod is how long a taint may stay before the controller reports it; the default would make the scenario
// long.
const taintGracePeriod = 10 * time.Second

// doctor runs `dovetail doctor` in a healthy cluster, and after each of several faults is injected. It applies the
// remedies that doctor prints.
func doctor() Scenario {
	const app = "sample"
	var unknown string
	begin := []Step{
		{
			Name:    "start the controller, which reports a stuck taint after 10 s",
			Timeout: 30 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				w.SetEnv("STARTUP_TAINT_GRACE_PERIOD", taintGracePeriod.String())
				return w.StartController(ctx)
			},
		},
		installPool(manifests.Default, nil),
		{Name: "doctor finds nothing in a healthy cluster", Timeout: 30 * time.Second, Run: awaitClean},
		{
			Name:    "launch an instance with the cluster's name and no owner: doctor reports it, and nothing after its remedy (adopt)",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) (err error) {
				if unknown, err = launchUnknownInstance(ctx, w); err != nil {
					return err
				}
				return remedyAndCheckClean(ctx, w, "identity-unknown-instance", unknown, "dovetail adopt --cluster-name "+w.Name)
			},
		},
		{
			Name: "delete the node role's access entry: doctor reports it, and nothing after its remedy", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := unmapNodeRole(ctx, w); err != nil {
					return err
				}
				remedy, err := awaitRemedy(ctx, w, "auth-node-role", "EC2NodeClass default", "NodeRoleNotMapped")
				if err != nil {
					return err
				}
				if err := applyRemedy(ctx, w, remedy); err != nil {
					return err
				}
				return awaitClean(ctx, w)
			},
		},
	}
	end := []Step{
		{
			Name:    "stop the cloud controller manager and create a pod: doctor reports the node's taint, and after its remedy the pod runs",
			Timeout: 2 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				w.StopCloudController()
				if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
					return err
				}
				if err := removeStuckTaints(ctx, w, app); err != nil {
					return err
				}
				w.StartCloudController()
				return awaitClean(ctx, w)
			},
		},
		{
			Name: "garbage collection terminates the adopted instance, since it has no NodeClaim", Timeout: 150 * time.Second,
			Run: func(ctx context.Context, w *World) error { return awaitTerminated(ctx, w, unknown) },
		},
		removeStorage(),
		deleteAll(app, manifests.Default),
	}
	return Scenario{
		Name:    "doctor",
		Summary: "dovetail doctor finds nothing in a healthy cluster, reports each injected fault, and nothing after its remedy was applied",
		Steps:   slices.Concat(begin, storageFaults(), end),
	}
}

// storageFaults are the steps with faults that keep volumes from their pods, and their remedies.
func storageFaults() []Step {
	return []Step{
		{
			Name:    "install a CSI DaemonSet without the toleration and a StorageClass with immediate binding: doctor reports both",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := apply(ctx, w, manifests.Storage, map[string]string{"TOLERATIONS": toleratesNone}); err != nil {
					return err
				}
				_, err := awaitRemedy(
					ctx,
					w,
					"storage-daemon-toleration",
					"DaemonSet kube-system/ebs-csi-node",
					"kubectl -n kube-system patch daemonset ebs-csi-node",
				)
				if err != nil {
					return err
				}
				return onlyStorageFindings(ctx, w)
			},
		},
		{
			Name: "apply the StorageClass's remedy: it waits for the first consumer, and doctor reports only the DaemonSet", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := runRemedy(ctx, w, "storage-immediate", "StorageClass gp3-immediate", "kubectl replace"); err != nil {
					return err
				}
				var class storagev1.StorageClass
				if err := w.Client.Get(ctx, client.ObjectKey{Name: "gp3-immediate"}, &class); err != nil {
					return err
				}
				if class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer ||
					class.Parameters["type"] != "gp3" {
					return fmt.Errorf("the StorageClass is %+v", class)
				}
				_, err := awaitRemedy(ctx, w, "storage-daemon-toleration", "DaemonSet kube-system/ebs-csi-node", "karpenter.sh/disrupted")
				return err
			},
		},
		{
			Name: "apply the DaemonSet's remedy: doctor finds nothing", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				return remedyAndCheckClean(ctx, w, "storage-daemon-toleration", "DaemonSet kube-system/ebs-csi-node", "karpenter.sh/disrupted")
			},
		},
		{
			Name: "create a VolumeAttachment of a deleted node: doctor reports it, and nothing after its remedy", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := w.Client.Create(ctx, orphanedAttachment("planted")); err != nil {
					return err
				}
				return remedyAndCheckClean(
					ctx,
					w,
					"storage-leftover-attachment",
					"VolumeAttachment planted",
					"kubectl delete volumeattachment planted",
				)
			},
		},
	}
}

// launchUnknownInstance launches an instance that has the cluster's name but no cluster UID, as another autoscaler may
// leave behind. It returns the object name that doctor reports.
func launchUnknownInstance(ctx context.Context, w *World) (string, error) {
	image, err := w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-")
	if err != nil {
		return "", err
	}
	subnets, err := w.EC2().DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{{
		Name: aws.String("tag:karpenter.sh/discovery"), Values: []string{w.Name},
	}}})
	if err != nil || len(subnets.Subnets) == 0 {
		return "", errors.Join(errors.New("the cluster has no subnet to launch into"), err)
	}
	var tags []ec2types.Tag
	for key, value := range map[string]string{
		awsv1.TagClusterPrefix + w.Name: awsv1.TagOwned, awsv1.TagClusterName: w.Name, awsv1.TagNodePool: "default",
		awsv1.TagNodeClass: "default",
	} {
		tags = append(tags, ec2types.Tag{Key: &key, Value: &value})
	}
	out, err := w.EC2().RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: &image, InstanceType: ec2types.InstanceTypeM5Large, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		SubnetId:          subnets.Subnets[0].SubnetId,
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeInstance, Tags: tags}},
	})
	if err != nil {
		return "", err
	}
	return "instance " + aws.ToString(out.Instances[0].InstanceId), nil
}

// awaitTerminated waits until an instance, given by the object name that doctor reports, is terminated.
func awaitTerminated(ctx context.Context, w *World, object string) error {
	return world.Until(ctx, func() error {
		for _, i := range w.Instances() {
			if "instance "+i.ID == object && i.State == "terminated" {
				return nil
			}
		}
		return fmt.Errorf("%s is not terminated", object)
	})
}

func orphanedAttachment(name string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "example.com",
			NodeName: "gone",
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		},
	}
}

// onlyStorageFindings checks that doctor reports the two storage faults and nothing else.
func onlyStorageFindings(ctx context.Context, w *World) error {
	diagnosis, err := w.Doctor(ctx)
	if err != nil {
		return err
	}
	var checks []string
	for _, f := range diagnosis.Findings {
		checks = append(checks, f.Check+" "+f.Object)
	}
	want := []string{"storage-daemon-toleration DaemonSet kube-system/ebs-csi-node", "storage-immediate StorageClass gp3-immediate"}
	if !slices.Equal(checks, want) {
		return fmt.Errorf("doctor reports %q, want %q", checks, want)
	}
	return nil
}

// removeStuckTaints applies doctor's remedies for stuck taints until the pod of app runs and doctor finds nothing.
// While the first node waits, the autoscaler may launch one other.
func removeStuckTaints(ctx context.Context, w *World, app string) error {
	remedied := map[string]bool{}
	return world.Until(ctx, func() error {
		diagnosis, err := w.Doctor(ctx)
		if err != nil {
			return err
		}
		for _, f := range diagnosis.Findings {
			if f.Check != "nodes-stuck-taint" || !strings.Contains(f.Seen, uninitialized) ||
				!strings.Contains(f.Remedy, "the cloud controller manager") {
				return fmt.Errorf("doctor reports %+v", f)
			}
			if remedied[f.Object] {
				return fmt.Errorf("%s still has its taint, or has it again: %s", f.Object, f.Seen)
			}
			if _, err := w.Shell(ctx, f.Command); err != nil {
				return err
			}
			remedied[f.Object] = true
			w.Note("%s: %s", f.Object, f.Command)
		}
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		if len(remedied) == 0 || len(diagnosis.Findings) > 0 || slices.ContainsFunc(all, func(p corev1.Pod) bool { return !running(p) }) {
			return fmt.Errorf("%d nodes had a taint removed, %d findings, pods %v", len(remedied), len(diagnosis.Findings), phases(all))
		}
		return nil
	})
}

func phases(all []corev1.Pod) (out []corev1.PodPhase) {
	for _, p := range all {
		out = append(out, p.Status.Phase)
	}
	return out
}

// awaitRemedy waits until doctor reports this check for this object, with these words in the observation or the remedy.
// It waits, since EC2 shows changes with a delay. It returns the remedy.
func awaitRemedy(ctx context.Context, w *World, check, object, words string) (remedy string, err error) {
	f, err := awaitFinding(ctx, w, check, object, words)
	return f.Remedy, err
}

func awaitFinding(ctx context.Context, w *World, check, object, words string) (found world.Finding, err error) {
	err = world.Until(ctx, func() error {
		diagnosis, err := w.Doctor(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(diagnosis.Findings, func(f world.Finding) bool {
			return f.Check == check && strings.HasPrefix(f.Object, object) && strings.Contains(f.Seen+f.Remedy, words)
		})
		if at < 0 {
			return fmt.Errorf("doctor does not report %s of %s with %q: %+v", check, object, words, diagnosis.Findings)
		}
		found = diagnosis.Findings[at]
		if diagnosis.Exit != 1 || found.Remedy == "" || !strings.Contains(found.Remedy, found.Command) {
			return fmt.Errorf("exit code %d, want 1; remedy %q with command %q", diagnosis.Exit, found.Remedy, found.Command)
		}
		return nil
	})
	return found, err
}

// runRemedy waits for a finding, and runs the command that doctor prints for it.
func runRemedy(ctx context.Context, w *World, check, object, words string) error {
	f, err := awaitFinding(ctx, w, check, object, words)
	if err != nil {
		return err
	}
	if f.Command == "" {
		return fmt.Errorf("doctor prints no command for %s: %s", object, f.Remedy)
	}
	if _, err := w.Shell(ctx, f.Command); err != nil {
		return err
	}
	w.Note("%s", f.Command)
	return nil
}

// remedyAndCheckClean applies the remedy of a finding, and waits until doctor finds nothing.
func remedyAndCheckClean(ctx context.Context, w *World, check, object, words string) error {
	if err := runRemedy(ctx, w, check, object, words); err != nil {
		return err
	}
	return awaitClean(ctx, w)
}

// awaitClean waits until doctor finds nothing.
func awaitClean(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		diagnosis, err := w.Doctor(ctx)
		if err != nil {
			return err
		}
		if len(diagnosis.Findings)+len(diagnosis.NotChecked) > 0 || diagnosis.Exit != 0 {
			return fmt.Errorf("exit code %d, findings %+v, not checked %+v", diagnosis.Exit, diagnosis.Findings, diagnosis.NotChecked)
		}
		w.Note("%d checks", diagnosis.Checks)
		return nil
	})
}
