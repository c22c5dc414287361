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

// taintGracePeriod is after how long the controller of this story names a taint that stays.
const taintGracePeriod = 10 * time.Second

// doctor is the story of a cluster that is looked over while it is sound, and with faults planted in it: one for each way
// in which clusters fail.
func doctor() Scenario {
	const app = "sample"
	var stray string
	begin := []Step{
		{Name: "start the controller, to name a taint that stays after 10 s", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error {
			w.SetEnv("USUAL_TAINT_TIME", taintGracePeriod.String())
			return w.StartController(ctx)
		}},
		installPool(manifests.Default, nil),
		{Name: "a sound cluster: nothing is found", Timeout: 30 * time.Second, Run: awaitClean},
		{
			Name: "an instance of the cluster's name that nobody owns: named; adopted as is said, the cluster is clean", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) (err error) {
				if stray, err = launchUnknownInstance(ctx, w); err != nil {
					return err
				}
				return remedyAndCheckClean(ctx, w, "identity-unknown-instance", stray, "dovetail adopt --cluster-name "+w.Name)
			},
		},
		{
			Name: "the node role loses its access entry: named; mapped as is said, the cluster is clean", Timeout: time.Minute,
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
			Name: "the cloud controller manager stops, and a pod gets a node: its taint is named; removed as is said, the pod runs", Timeout: 2 * time.Minute,
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
			Name: "the instance that was adopted is collected, since no NodeClaim has it", Timeout: 150 * time.Second,
			Run: func(ctx context.Context, w *World) error { return awaitTerminated(ctx, w, stray) },
		},
		removeStorage(),
		deleteAll(app, manifests.Default),
	}
	return Scenario{
		Name:    "doctor",
		Summary: "dovetail doctor finds nothing in a sound cluster, names each fault that is planted, and is clean once what it prints was done",
		Steps:   slices.Concat(begin, storageFaults(), end),
	}
}

// storageFaults are what keeps volumes from where they are needed, and what mends it.
func storageFaults() []Step {
	return []Step{
		{
			Name: "a CSI daemon without the toleration, and a StorageClass that binds immediately: both named", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := apply(ctx, w, manifests.Storage, map[string]string{"TOLERATIONS": toleratesNone}); err != nil {
					return err
				}
				_, err := awaitRemedy(ctx, w, "storage-daemon-toleration", "DaemonSet kube-system/ebs-csi-node", "kubectl -n kube-system patch daemonset ebs-csi-node")
				if err != nil {
					return err
				}
				return onlyStorageFindings(ctx, w)
			},
		},
		{
			Name: "the class is made anew as is said: it waits for its first consumer, and only the daemon is left", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := runRemedy(ctx, w, "storage-immediate", "StorageClass gp3-immediate", "kubectl replace"); err != nil {
					return err
				}
				var class storagev1.StorageClass
				if err := w.Client.Get(ctx, client.ObjectKey{Name: "gp3-immediate"}, &class); err != nil {
					return err
				}
				if class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || class.Parameters["type"] != "gp3" {
					return fmt.Errorf("the class is %+v", class)
				}
				_, err := awaitRemedy(ctx, w, "storage-daemon-toleration", "DaemonSet kube-system/ebs-csi-node", "karpenter.sh/disrupted")
				return err
			},
		},
		{
			Name: "the daemon is patched as is said: the cluster is clean", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				return remedyAndCheckClean(ctx, w, "storage-daemon-toleration", "DaemonSet kube-system/ebs-csi-node", "karpenter.sh/disrupted")
			},
		},
		{
			Name: "a VolumeAttachment of a node that is gone: named; deleted as is said, the cluster is clean", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := w.Client.Create(ctx, orphanedAttachment("planted")); err != nil {
					return err
				}
				return remedyAndCheckClean(ctx, w, "storage-leftover-attachment", "VolumeAttachment planted", "kubectl delete volumeattachment planted")
			},
		},
	}
}

// launchUnknownInstance launches an instance that bears the cluster's name and nobody's identity, as an autoscaler of another make
// has left behind. It returns how the doctor calls it.
func launchUnknownInstance(ctx context.Context, w *World) (string, error) {
	image, err := w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-")
	if err != nil {
		return "", err
	}
	subnets, err := w.EC2().DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{{
		Name: aws.String("tag:karpenter.sh/discovery"), Values: []string{w.Name},
	}}})
	if err != nil || len(subnets.Subnets) == 0 {
		return "", errors.Join(errors.New("there is no subnet to launch into"), err)
	}
	var tags []ec2types.Tag
	for key, value := range map[string]string{
		awsv1.TagClusterPrefix + w.Name: awsv1.TagOwned, awsv1.TagClusterName: w.Name, awsv1.TagNodePool: "default", awsv1.TagNodeClass: "default",
	} {
		tags = append(tags, ec2types.Tag{Key: &key, Value: &value})
	}
	out, err := w.EC2().RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: &image, InstanceType: ec2types.InstanceTypeM5Large, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: subnets.Subnets[0].SubnetId,
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeInstance, Tags: tags}},
	})
	if err != nil {
		return "", err
	}
	return "instance " + aws.ToString(out.Instances[0].InstanceId), nil
}

// collected waits until an instance, as the doctor calls it, has been terminated.
func awaitTerminated(ctx context.Context, w *World, stray string) error {
	return world.Until(ctx, func() error {
		for _, i := range w.Instances() {
			if "instance "+i.ID == stray && i.State == "terminated" {
				return nil
			}
		}
		return fmt.Errorf("%s is not terminated", stray)
	})
}

func orphanedAttachment(name string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "example.com", NodeName: "gone", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}},
	}
}

// onlyStorageFindings expects that nothing but the two faults of the storage is found.
func onlyStorageFindings(ctx context.Context, w *World) error {
	said, err := w.Doctor(ctx)
	if err != nil {
		return err
	}
	var checks []string
	for _, f := range said.Findings {
		checks = append(checks, f.Check+" "+f.Object)
	}
	want := []string{"storage-daemon-toleration DaemonSet kube-system/ebs-csi-node", "storage-immediate StorageClass gp3-immediate"}
	if !slices.Equal(checks, want) {
		return fmt.Errorf("found %q, want %q", checks, want)
	}
	return nil
}

// removeStuckTaints does what the doctor says about taints that stay, until the pod of app runs and nothing is found any more.
// While the first node waits, the autoscaler may buy another once.
func removeStuckTaints(ctx context.Context, w *World, app string) error {
	treated := map[string]bool{}
	return world.Until(ctx, func() error {
		said, err := w.Doctor(ctx)
		if err != nil {
			return err
		}
		for _, f := range said.Findings {
			if f.Check != "nodes-stuck-taint" || !strings.Contains(f.Seen, uninitialized) || !strings.Contains(f.Remedy, "the cloud controller manager") {
				return fmt.Errorf("found %+v", f)
			}
			if treated[f.Object] {
				return fmt.Errorf("%s has its taint again, or still: %s", f.Object, f.Seen)
			}
			if _, err := w.Shell(ctx, f.Command); err != nil {
				return err
			}
			treated[f.Object] = true
			w.Note("%s: %s", f.Object, f.Command)
		}
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		if len(treated) == 0 || len(said.Findings) > 0 || slices.ContainsFunc(all, func(p corev1.Pod) bool { return !running(p) }) {
			return fmt.Errorf("%d nodes had a taint removed, %d findings, pods %v", len(treated), len(said.Findings), phases(all))
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

// diagnosed waits until the doctor has a finding of that check about that object, with these words in what was seen or in
// what is to be done: EC2 shows what was done to it with a delay. It returns the remedy.
func awaitRemedy(ctx context.Context, w *World, check, object, words string) (remedy string, err error) {
	f, err := awaitFinding(ctx, w, check, object, words)
	return f.Remedy, err
}

func awaitFinding(ctx context.Context, w *World, check, object, words string) (found world.Finding, err error) {
	err = world.Until(ctx, func() error {
		said, err := w.Doctor(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(said.Findings, func(f world.Finding) bool {
			return f.Check == check && strings.HasPrefix(f.Object, object) && strings.Contains(f.Seen+f.Remedy, words)
		})
		if at < 0 {
			return fmt.Errorf("the doctor does not find %s of %s with %q: %+v", check, object, words, said.Findings)
		}
		found = said.Findings[at]
		if said.Exit != 1 || found.Remedy == "" || !strings.Contains(found.Remedy, found.Command) {
			return fmt.Errorf("exit code %d, want 1; remedy %q with command %q", said.Exit, found.Remedy, found.Command)
		}
		return nil
	})
	return found, err
}

// treat has the doctor look, and runs the command that it prints.
func runRemedy(ctx context.Context, w *World, check, object, words string) error {
	f, err := awaitFinding(ctx, w, check, object, words)
	if err != nil {
		return err
	}
	if f.Command == "" {
		return fmt.Errorf("no command is printed for %s: %s", object, f.Remedy)
	}
	if _, err := w.Shell(ctx, f.Command); err != nil {
		return err
	}
	w.Note("%s", f.Command)
	return nil
}

// cured treats a finding, and expects that it was the only one.
func remedyAndCheckClean(ctx context.Context, w *World, check, object, words string) error {
	if err := runRemedy(ctx, w, check, object, words); err != nil {
		return err
	}
	return awaitClean(ctx, w)
}

// clean waits until the doctor finds nothing.
func awaitClean(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		said, err := w.Doctor(ctx)
		if err != nil {
			return err
		}
		if len(said.Findings)+len(said.NotChecked) > 0 || said.Exit != 0 {
			return fmt.Errorf("exit code %d, findings %+v, not checked %+v", said.Exit, said.Findings, said.NotChecked)
		}
		w.Note("%d checks", said.Checks)
		return nil
	})
}
