package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// uninitializedTaint is the story of a cloud controller manager that does not work, and of a stale write that puts its
// taint back.
func uninitializedTaint() Scenario {
	const app = "sample"
	return Scenario{
		Name:    "uninitialized-taint",
		Summary: "nodes wait for a cloud controller manager that is absent: named within a minute, and no endless buying; back again, pods run",
		Steps: []Step{
			{Name: "the cloud controller manager stops", Timeout: 10 * time.Second, Run: func(_ context.Context, w *World) error {
				w.StopCloudController()
				return nil
			}},
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: "create a pod: its node joins, and the taint that stays is named with its owner", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
						return err
					}
					return taintNamed(ctx, w)
				},
			},
			{
				Name: "the doctor names it, too", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					return diagnosed(ctx, w, "nodes-stuck-taint", "cloud controller manager")
				},
			},
			{
				Name: "another node is bought once for the pod, and no third", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if _, err := classNames(ctx, w, "TaintStuck"); err != nil {
						return err
					}
					if n := len(w.Instances()); n != 2 {
						return fmt.Errorf("%d instances were launched, want 2", n)
					}
					return nil
				},
			},
			{
				Name: "the cloud controller manager is back: the pod runs, without a restart", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					w.StartCloudController()
					return podsRun(ctx, w, app, 1)
				},
			},
			{
				Name: "delete the workload: the nodes and the instances go", Timeout: 90 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, app, 0); err != nil {
						return err
					}
					return empty(ctx, w, app)
				},
			},
			removePool(manifests.Default, nil),
		},
	}
}

// taintNamed waits until a NodeClaim says which taint its node waits for, and whose it is.
func taintNamed(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		last := errors.New("there is no NodeClaim")
		for _, c := range claims.Items {
			initialized, registered := find(c.Status.Conditions, karpv1.ConditionInitialized), find(c.Status.Conditions, karpv1.ConditionRegistered)
			if initialized.Reason != "TaintStuck" || !strings.Contains(initialized.Message, uninitialized) || !strings.Contains(initialized.Message, "cloud controller manager") {
				last = fmt.Errorf("NodeClaim %s: Initialized=%s %s %s", c.Name, initialized.Status, initialized.Reason, initialized.Message)
				continue
			}
			w.Note("named %.0f s after the node joined", time.Since(registered.LastTransitionTime.Time).Seconds())
			return nil
		}
		return last
	})
}

// diagnosed has the doctor look, and expects a finding of that check with these words in it.
func diagnosed(ctx context.Context, w *World, check, words string) error {
	said, err := w.Doctor(ctx)
	if err != nil {
		return err
	}
	for _, f := range said.Findings {
		if f.Check == check && strings.Contains(f.Seen+f.Remedy, words) {
			if said.Exit != 1 || f.Remedy == "" {
				return fmt.Errorf("exit code %d, want 1; remedy %q", said.Exit, f.Remedy)
			}
			return nil
		}
	}
	return fmt.Errorf("the doctor does not find %s with %q: %+v", check, words, said.Findings)
}

// clean waits until the doctor finds nothing.
func clean(ctx context.Context, w *World) error {
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

// doctor is the story of a cluster that is looked over while it is sound, and with faults planted in it.
func doctor() Scenario {
	immediate := storagev1.VolumeBindingImmediate
	class := func() *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "planted"}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &immediate}
	}
	attachment := func() *storagev1.VolumeAttachment {
		volume := "planted"
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "planted"},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: "example.com", NodeName: "gone", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		}
	}
	return Scenario{
		Name:    "doctor",
		Summary: "dovetail doctor finds nothing in a sound cluster, names each fault that is planted, and is clean once its remedies are applied",
		Steps: []Step{
			startController(),
			installPool(manifests.Default, nil),
			{Name: "a sound cluster: nothing is found", Timeout: 30 * time.Second, Run: clean},
			{
				Name: "the node role loses its access entry: named, with the command that mends it", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := unmap(ctx, w); err != nil {
						return err
					}
					if err := diagnosed(ctx, w, "auth-node-role", "NodeRoleNotMapped"); err != nil {
						return err
					}
					said, err := w.Doctor(ctx)
					if err != nil {
						return err
					}
					if err := mend(ctx, w, said.Findings[0].Remedy); err != nil {
						return err
					}
					return clean(ctx, w)
				},
			},
			{
				Name: "a zonal StorageClass that binds immediately: named; deleted as is said, the cluster is clean", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return planted(ctx, w, class(), "storage-immediate", "kubectl delete storageclass planted")
				},
			},
			{
				Name: "a VolumeAttachment of a node that is gone: named; deleted as is said, the cluster is clean", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return planted(ctx, w, attachment(), "storage-leftover-attachment", "kubectl delete volumeattachment planted")
				},
			},
			removePool(manifests.Default, nil),
		},
	}
}

// planted plants an object, expects the doctor to say how to mend it, deletes it as it says, and expects a clean cluster.
func planted(ctx context.Context, w *World, o client.Object, check, command string) error {
	if err := w.Client.Create(ctx, o); err != nil {
		return err
	}
	if err := diagnosed(ctx, w, check, command); err != nil {
		return err
	}
	if err := w.Client.Delete(ctx, o); err != nil {
		return err
	}
	return clean(ctx, w)
}
