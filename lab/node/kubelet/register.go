package kubelet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider/api"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// register creates the Node. Whatever goes wrong is tried again, ever more slowly, for as long as the
// instance runs; it reports false if ctx is done first.
func (k *Kubelet) register(ctx context.Context) bool {
	for step := 100 * time.Millisecond; pause(ctx, step); {
		step = min(2*step, 7*time.Second)
		node := k.node()
		k.logf('I', `"Attempting to register node" node="%s"`, k.cfg.Name)
		if k.tryRegister(ctx, node) {
			k.logf('I', `"Successfully registered node" node="%s"`, k.cfg.Name)
			return true
		}
	}
	return false
}

func (k *Kubelet) tryRegister(ctx context.Context, node *corev1.Node) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	created, err := k.cfg.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	switch {
	case err == nil:
		k.own.see(created)
		return true
	case errors.Is(ctx.Err(), context.Canceled):
		return false
	case !apierrors.IsAlreadyExists(err):
		k.logf('E', `"Unable to register node with API server" err="%s" node="%s"`, oneLine(err), k.cfg.Name)
		return false
	}
	existing, err := k.cfg.Client.CoreV1().Nodes().Get(ctx, k.cfg.Name, metav1.GetOptions{})
	if err != nil {
		k.logf('E', `"Unable to register node with API server, error getting existing node" err="%s" node="%s"`, oneLine(err), k.cfg.Name)
		return false
	}
	k.own.see(existing)
	k.logf('I', `"Node was previously registered" node="%s"`, k.cfg.Name)
	return true
}

// node is the object that a new node is registered with.
func (k *Kubelet) node() *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   k.cfg.Name,
		corev1.LabelOSStable:   k.cfg.Info.OperatingSystem,
		corev1.LabelArchStable: k.cfg.Info.Architecture,
		kubeletapis.LabelOS:    k.cfg.Info.OperatingSystem,
		kubeletapis.LabelArch:  k.cfg.Info.Architecture,
	}
	maps.Copy(labels, k.cfg.Labels)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.cfg.Name, Labels: labels,
			Annotations: map[string]string{
				cloudprovider.AnnotationAlphaProvidedIPAddr:              k.cfg.IP.String(),
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
		},
		Spec: corev1.NodeSpec{
			ProviderID: k.cfg.ProviderID,
			// The cloud controller manager removes the last one when it has done its part.
			Taints: append(slices.Clone(k.cfg.Taints), corev1.Taint{
				Key: cloudprovider.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule,
			}),
		},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: k.cfg.IP.String()},
				{Type: corev1.NodeHostName, Address: k.cfg.Name},
			},
		},
	}
	k.setStatus(&node.Status, false /* ready */, time.Now())
	return node
}

// oneLine makes a message fit for a console.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
