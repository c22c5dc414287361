package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// family is an image family and what its node must look like.
type family struct {
	name, amiFamily string
	alias           string // empty: the image is selected by its ID
	image           string // prefix of the image's name, if there is no alias // prefix of the image's name, if there is no alias
	userData        string // spec.userData
	labels          map[string]string
	os              string // prefix of the node's osImage
}

func imageFamilies() []family {
	own := map[string]string{"own": "kept"}
	return []family{
		{
			name: "al2", amiFamily: "AL2", image: "amazon-eks-node-1.32-", os: "Amazon Linux 2",
			userData: "#!/bin/sh\necho hello\n",
		},
		{
			name: "al2023", amiFamily: "AL2023", alias: "al2023@latest", os: "Amazon Linux 2023", labels: own,
			userData: "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config: {maxPods: 7}\n    flags: [--node-labels=own=kept]\n",
		},
		{
			name: "bottlerocket", amiFamily: "Bottlerocket", alias: "bottlerocket@latest", os: "Bottlerocket OS", labels: own,
			userData: "[settings.kubernetes]\nmax-pods = 7\n[settings.kubernetes.node-labels]\nown = \"kept\"\n",
		},
		{
			name: "windows", amiFamily: "Windows2022", alias: "windows2022@latest", os: "Windows Server 2022",
			labels: map[string]string{
				"kubernetes.io/os":                 "windows",
				"node.kubernetes.io/windows-build": "10.0.20348",
			}, userData: "Write-Host hello\n",
		},
	}
}

// bootImageFamilies boots a node of each image family, with every setting that the family supports.
func bootImageFamilies() Scenario {
	const app = "family"
	all := imageFamilies()
	each := func(ctx context.Context, w *World, do func(context.Context, []byte) error) error {
		for _, f := range all {
			text, err := f.manifest(ctx, w)
			if err != nil {
				return err
			}
			if err := do(ctx, text); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		return nil
	}
	return Scenario{
		Name:    "image-families",
		Summary: "nodes of AL2, AL2023, Bottlerocket and Windows join with their kubelet settings, labels, taints and custom user data",
		Steps: []Step{
			startController(),
			{
				Name:    "create a NodePool, an EC2NodeClass and a pod for each family: each gets a node, which keeps its startup taint",
				Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := each(ctx, w, w.Apply); err != nil {
						return err
					}
					return world.Until(ctx, func() error { return nodesMatchFamilies(ctx, w, all) })
				},
			},
			{
				Name: "remove the startup taints: the nodes become initialized and the pods run", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := world.Until(ctx, func() error { return removeStartupTaints(ctx, w) }); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, app, len(all)); err != nil {
						return err
					}
					return world.Until(ctx, func() error { return nodesInitialized(ctx, w, len(all)) })
				},
			},
			{
				Name: "delete all objects: no resource is left", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := each(ctx, w, w.Delete); err != nil {
						return err
					}
					if err := awaitEmpty(ctx, w, app); err != nil {
						return err
					}
					return awaitNothingLeft(ctx, w)
				},
			},
		},
	}
}

func (f family) manifest(ctx context.Context, w *World) ([]byte, error) {
	term := "{alias: " + f.alias + "}"
	if f.alias == "" {
		id, err := w.ImageID(ctx, f.image)
		if err != nil {
			return nil, err
		}
		term = "{id: " + id + "}"
	}
	return render(w, manifests.ImageFamily, map[string]string{
		"FAMILY": f.name, "AMI_FAMILY": f.amiFamily, "AMI": term, "USER_DATA": strconv.Quote(f.userData),
	})
}

// nodesMatchFamilies returns how the nodes differ from their families' manifests, or nil if they do not.
func nodesMatchFamilies(ctx context.Context, w *World, all []family) error {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return err
	}
	var errs []error
	for _, f := range all {
		i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Labels["family"] == f.name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("there is no node of %s", f.name))
			continue
		}
		if err := f.check(&nodes.Items[i]); err != nil {
			errs = append(errs, fmt.Errorf("node %s of %s: %w", nodes.Items[i].Name, f.name, err))
		}
	}
	if len(nodes.Items) > len(all) {
		errs = append(errs, fmt.Errorf("there are %d nodes, want %d", len(nodes.Items), len(all)))
	}
	return errors.Join(errs...)
}

// check compares a node of m5.large with the manifest: 2 CPUs of which 300m are reserved, 20 pods whatever the custom
// user data sets, and the NodePool's taints.
func (f family) check(n *corev1.Node) error {
	if image := n.Status.NodeInfo.OSImage; !strings.HasPrefix(image, f.os) {
		return fmt.Errorf("osImage is %s, want %s", image, f.os)
	}
	want := map[string]string{"example.com/kubernetes.io": "kept", karpv1.LabelRegistered: "true", karpv1.LabelDoNotSyncTaints: "true"}
	for key, value := range f.labels {
		want[key] = value
	}
	for key, value := range want {
		if n.Labels[key] != value {
			return fmt.Errorf("label %s is %q, want %q", key, n.Labels[key], value)
		}
	}
	var taints []string
	for _, t := range n.Spec.Taints {
		taints = append(taints, t.ToString())
	}
	slices.Sort(taints)
	if want := []string{"dedicated=" + f.name + ":NoSchedule", "example.com/agent-not-ready:NoExecute"}; !slices.Equal(taints, want) {
		return fmt.Errorf("taints are %v, want %v", taints, want)
	}
	if pods, cpu := n.Status.Allocatable.Pods().Value(), n.Status.Allocatable.Cpu(); pods != 20 ||
		cpu.Cmp(resource.MustParse("1700m")) != 0 {
		return fmt.Errorf("%d pods and CPU %s are allocatable, want 20 and 1700m", pods, cpu)
	}
	return nil
}

func removeStartupTaints(ctx context.Context, w *World) error {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return err
	}
	for _, n := range nodes.Items {
		before := client.MergeFromWithOptions(n.DeepCopy(), client.MergeFromWithOptimisticLock{})
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/agent-not-ready" })
		if err := w.Client.Patch(ctx, &n, before); err != nil {
			return err
		}
	}
	return nil
}

// nodesInitialized returns an error unless exactly want nodes are initialized.
func nodesInitialized(ctx context.Context, w *World, want int) error {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return err
	}
	done := 0
	for _, n := range nodes.Items {
		if n.Labels[karpv1.LabelInitialized] == "true" {
			done++
		}
	}
	if done != want {
		return fmt.Errorf("%d of %d nodes are initialized, want %d", done, len(nodes.Items), want)
	}
	return nil
}
