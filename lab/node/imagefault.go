package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/node/kubelet"
)

// ImageFault is what is wrong with instances that boot with an image.
type ImageFault string

// The faults of images and their configuration, and what nodes with them show.
const (
	// DoesNotJoin: kubelet does not start, since containerd does not.
	DoesNotJoin ImageFault = "does not join"
	// ClockSkew: the clock is an hour late, and the API server does not accept kubelet's token.
	ClockSkew ImageFault = "clock skew"
	// NoNetworkPlugin: the node registers and does not become Ready.
	NoNetworkPlugin ImageFault = "no network plugin"
	// NotReadyLater: kubelet hangs after a while, and its lease expires.
	NotReadyLater ImageFault = "NotReady later"
	// PanicLoop: the kernel panics after a while and boots again, over and over: all containers restart.
	PanicLoop ImageFault = "kernel panic loop"
	// DNSBroken: applications do not become ready; daemons do.
	DNSBroken ImageFault = "DNS broken"
	// MemoryLeak: the node has MemoryPressure after a while.
	MemoryLeak ImageFault = "memory leak"
	// DiskFull: the node has DiskPressure after a while.
	DiskFull ImageFault = "disk full"
	// WrongReserve: kubelet reserves four fifths of CPU and memory.
	WrongReserve ImageFault = "wrong kubelet reserve"
	// NoGPUDriver: the daemon that reports GPUs crashes.
	NoGPUDriver ImageFault = "no GPU driver"
	// PullsFail: no image of a container can be pulled.
	PullsFail ImageFault = "image pulls fail"
	// DaemonsCrash: the pods of DaemonSets crash.
	DaemonsCrash ImageFault = "daemons crash"
)

// GPUDaemon is the value of the label app of the DaemonSet that reports GPUs.
const GPUDaemon = "gpu-device-plugin"

// plantedFault is a fault, and how long after the boot it shows, if it does not at once.
type plantedFault struct {
	ImageFault
	after time.Duration
}

// faultKey is where a fault is planted.
type faultKey struct{ image, pool string }

// PlantFault gives instances a fault that boot with this image from now on for a NodePool, so long after their boot.
func (f *Simulator) PlantFault(image, pool string, fault ImageFault, after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.planted[faultKey{image, pool}] = plantedFault{fault, after}
}

func (f *Simulator) plantedFault(i awsim.Instance) plantedFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.planted[faultKey{i.ImageID, i.Tags[karpv1.LabelNodePool]}]
}

// skew is what the clock of an instance shows less than the time.
func (p plantedFault) skew() time.Duration {
	if p.ImageFault == ClockSkew {
		return time.Hour
	}
	return 0
}

// start is the error with which kubelet does not start; nil if it starts.
func (p plantedFault) start() error {
	if p.ImageFault == DoesNotJoin {
		return kubeletExit{errors.New("failed to run Kubelet: validate service connection: containerd.sock: connect: no such file or directory")}
	}
	return nil
}

// configure changes what kubelet does.
func (p plantedFault) configure(c *kubelet.Config) {
	every := func(fault string, has func(*corev1.Pod) bool) {
		c.PodFault = func(pod *corev1.Pod) string {
			if has(pod) {
				return fault
			}
			return ""
		}
	}
	switch p.ImageFault {
	case NoNetworkPlugin:
		c.Network = make(chan struct{})
	case MemoryLeak:
		c.Pressure = map[corev1.NodeConditionType]time.Duration{corev1.NodeMemoryPressure: p.after}
	case DiskFull:
		c.Pressure = map[corev1.NodeConditionType]time.Duration{corev1.NodeDiskPressure: p.after}
	case WrongReserve:
		c.Allocatable = c.Allocatable.DeepCopy()
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			c.Allocatable[name] = *resource.NewMilliQuantity(c.Allocatable.Name(name, resource.DecimalSI).MilliValue()/5, resource.DecimalSI)
		}
	case DNSBroken:
		every("unready", func(pod *corev1.Pod) bool { return !isDaemon(pod) })
	case PullsFail:
		every("image", func(*corev1.Pod) bool { return true })
	case DaemonsCrash:
		every("crash", isDaemon)
	case NoGPUDriver:
		every("crash", func(pod *corev1.Pod) bool { return pod.Labels["app"] == GPUDaemon })
	}
}

func isDaemon(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// rebootTime is how long an instance takes to boot anew after a panic: Kubernetes does not notice.
const rebootTime = 3 * time.Second

// panicOverAndOver runs kubelet until ctx is done. After each life the kernel panics, and all containers restart.
func (m host) panicOverAndOver(ctx context.Context, config kubelet.Config, life time.Duration) {
	for ctx.Err() == nil {
		works, stop := context.WithTimeout(ctx, life)
		kubelet.New(config).Run(works)
		stop()
		m.simulator.cfg.Cloud.AppendConsole(m.instance.ID, fmt.Sprintf("[%12.6f] Kernel panic - not syncing: Fatal exception\n", life.Seconds()))
		select {
		case <-ctx.Done():
			return
		case <-time.After(rebootTime):
		}
		if err := m.restartContainers(ctx, config.Client); err != nil {
			m.console("kubelet", m.klog('E', err.Error()))
		}
	}
}

// restartContainers has all containers on the node restart.
func (m host) restartContainers(ctx context.Context, client kubernetes.Interface) error {
	name := m.instance.PrivateDNSName
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return fmt.Errorf("list the pods of node %q: %w", name, err)
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		now := metav1.Now()
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			c.RestartCount++
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown", FinishedAt: now}
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"containerStatuses": pod.Status.ContainerStatuses}})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("restart the containers of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}
