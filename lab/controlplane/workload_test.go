package controlplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// The controllers make the pods of a large deployment, the scheduler states that they fit nowhere,
// and binds as many as it can once there is a node; deleting the namespace deletes what is in it.
func TestWorkload(t *testing.T) {
	const replicas, capacity = 200, 10
	c := sharedCluster(t)
	client := clientOf(t, c.RESTConfig())
	ns := "workload"
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error { // as admission demands of pods
		_, err := client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})

	begin := time.Now()
	if _, err := client.AppsV1().Deployments(ns).Create(t.Context(), deployment("web", replicas), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		pods, err := podsOf(ctx, client, ns)
		if err != nil {
			return err
		}
		if pods.unschedulable != replicas {
			return fmt.Errorf("%+v, want %d unschedulable", pods, replicas)
		}
		return nil
	})
	t.Logf("%d pods made and found unschedulable in %v", replicas, time.Since(begin))

	addNode(t, client, "workload-node", capacity)
	eventually(t, func(ctx context.Context) error {
		pods, err := podsOf(ctx, client, ns)
		if err != nil {
			return err
		}
		if pods.bound != capacity {
			return fmt.Errorf("%+v, want %d bound", pods, capacity)
		}
		return nil
	})

	// There is no kubelet that would end the bound pods: without their node, the garbage
	// collector for pods does.
	deleteNodes(t, client.CoreV1().Nodes(), "workload-node")
	if err := client.AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	now := int64(0)
	eventually(t, func(ctx context.Context) error {
		if err := client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
			return err
		}
		pods, err := podsOf(ctx, client, ns)
		if err != nil {
			return err
		}
		if pods != (podCount{}) {
			return fmt.Errorf("%+v left", pods)
		}
		return nil
	})
	if err := client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		ns, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("the namespace is %s: %v", ns.Status.Phase, ns.Status.Conditions)
	})
}

type podCount struct{ unschedulable, bound, neither int }

func podsOf(ctx context.Context, client kubernetes.Interface, ns string) (podCount, error) {
	pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return podCount{}, err
	}
	var n podCount
	for _, pod := range pods.Items {
		switch {
		case pod.Spec.NodeName != "":
			n.bound++
		case unschedulable(pod):
			n.unschedulable++
		default:
			n.neither++
		}
	}
	return n, nil
}

func unschedulable(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name:  "pause",
					Image: "registry.k8s.io/pause:3.10",
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
					},
				}}},
			},
		},
	}
}

// addNode adds a node that is ready and has room for that many pods.
func addNode(t *testing.T, client kubernetes.Interface, name string, pods int64) {
	t.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1000"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
	}
	node, err := client.CoreV1().Nodes().Create(
		t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
	}
	patch := fmt.Sprintf(`{"status":%s}`, jsonOf(t, node.Status))
	if _, err := client.CoreV1().Nodes().PatchStatus(t.Context(), name, []byte(patch)); err != nil {
		t.Fatal(err)
	}
}

func deleteNodes(t *testing.T, nodes clientcorev1.NodeInterface, names ...string) {
	t.Helper()
	for _, name := range names {
		// Not the test's context, which has finished when its clean-up runs.
		err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}
