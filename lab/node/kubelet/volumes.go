package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// volumePeriod is how often volumes are brought closer to what pods need, while they are not there yet.
	volumePeriod = 200 * time.Millisecond
	// pluginDirectory is where the daemon of a CSI driver has its socket.
	pluginDirectory = "/var/lib/kubelet/plugins/"
)

// volumes mounts what pods claim, and unmounts what none claims any more. Either needs the daemon of the volume's CSI
// driver on this node, and a volume must be attached before it is mounted. Until it is unmounted, the node's status
// states that it is in use, and the attach-detach controller leaves it attached.
type volumes struct {
	cfg Config

	mu      sync.Mutex
	pods    map[types.UID]*claimant
	volumes map[corev1.UniqueVolumeName]*volume
	plugins map[string]map[types.UID]bool // pods that serve a driver, by its name
	limits  map[string]*int32             // how many volumes a driver attaches, by its name: see csidriver.go
	changed chan struct{}                 // holds a token while there may be work

	reported   []corev1.UniqueVolumeName
	registered []string // drivers in the CSINode, with their limits
}

// claimant is a pod with volumes that are attached.
type claimant struct {
	pod     *corev1.Pod
	volumes []corev1.UniqueVolumeName // nil until they are known
	ready   bool
	leaving bool // its containers have finished
}

// volume is a volume that is attached for this node, or is to be.
type volume struct {
	csiDriver
	mounted bool
	idle    time.Time // since when no pod wants it; zero = some does
}

func newVolumes(cfg Config) *volumes {
	return &volumes{
		cfg: cfg, pods: map[types.UID]*claimant{}, volumes: map[corev1.UniqueVolumeName]*volume{},
		plugins: map[string]map[types.UID]bool{}, limits: map[string]*int32{}, changed: make(chan struct{}, 1),
	}
}

// see takes note of a pod, and reports whether its volumes let it start.
func (v *volumes) see(pod *corev1.Pod, gone bool) bool {
	over := gone || ended(pod)
	v.serve(pod, over)
	if len(claimsOf(pod)) == 0 {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.pods[pod.UID]
	switch {
	case over && c == nil:
		return true
	case over:
		c.leaving = true
		if gone {
			delete(v.pods, pod.UID)
		}
		v.wake()
		return true
	case c == nil && pod.DeletionTimestamp != nil && pod.Status.Phase == corev1.PodPending:
		return true // it will never start
	case c == nil:
		c = &claimant{pod: pod}
		v.pods[pod.UID] = c
		v.wake()
	}
	return c.ready || pod.DeletionTimestamp != nil
}

// serve takes note of a pod that is the daemon of a CSI driver.
func (v *volumes) serve(pod *corev1.Pod, over bool) {
	driver := driverOf(pod)
	if driver == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.plugins[driver] == nil {
		v.plugins[driver] = map[types.UID]bool{}
	}
	if runs := !over && pod.Status.Phase == corev1.PodRunning; runs != v.plugins[driver][pod.UID] {
		if runs {
			v.plugins[driver][pod.UID] = true
			v.limits[driver] = attachLimit(driver, pod)
		} else {
			delete(v.plugins[driver], pod.UID)
		}
		v.wake()
	}
}

// driverOf returns the CSI driver that a pod provides a socket for; empty if none.
func driverOf(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil {
			if name, ok := strings.CutPrefix(strings.TrimSuffix(h.Path, "/"), pluginDirectory); ok && !strings.Contains(name, "/") {
				return name
			}
		}
	}
	return ""
}

// claimsOf are the names of a pod's PersistentVolumeClaims.
func claimsOf(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		switch s := &pod.Spec.Volumes[i]; {
		case s.PersistentVolumeClaim != nil:
			out = append(out, s.PersistentVolumeClaim.ClaimName)
		case s.Ephemeral != nil:
			out = append(out, pod.Name+"-"+s.Name)
		}
	}
	return out
}

// blocked names what keeps the volumes of a pod from being unmounted; empty if nothing does. A pod's object goes only
// after its volumes have been taken from it.
func (v *volumes) blocked(uid types.UID) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.pods[uid]
	if c == nil || !c.ready {
		return ""
	}
	for _, name := range c.volumes {
		if on := v.volumes[name]; on != nil && on.mounted && !v.served(on) {
			return fmt.Sprintf("driver name %s not found in the list of registered CSI drivers", on.name)
		}
	}
	return ""
}

func (v *volumes) wake() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// run works until ctx is done, and calls mounted with each pod that may start. It queries the API server only while there is
// something to do.
func (v *volumes) run(ctx context.Context, mounted func(types.UID)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.changed:
		}
		if !v.step(ctx, mounted) && pause(ctx, volumePeriod) {
			v.wake()
		}
	}
}

// step does what can be done now, and reports whether nothing is left to do.
func (v *volumes) step(ctx context.Context, mounted func(types.UID)) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := v.register(ctx); err != nil {
		v.logf("Failed to register CSI drivers", err)
		return false
	}
	settled := v.resolve(ctx)
	if err := v.report(ctx); err != nil {
		v.logf("Failed to report volumes in use", err)
		return false
	}
	settled = v.unmount() && settled
	ready, done, err := v.mount(ctx)
	if err != nil {
		v.logf("Failed to look for attached volumes", err)
		return false
	}
	for _, uid := range ready {
		mounted(uid)
	}
	if err := v.report(ctx); err != nil {
		v.logf("Failed to report volumes in use", err)
		return false
	}
	return settled && done
}

func (v *volumes) logf(what string, err error) {
	v.cfg.Log('E', fmt.Sprintf(`"%s" err="%s" node="%s"`, what, oneLine(err), v.cfg.Name))
}

// resolve finds out which volumes stand behind the claims of pods.
func (v *volumes) resolve(ctx context.Context) bool {
	v.mu.Lock()
	var unknown []*claimant
	for _, c := range v.pods {
		if c.volumes == nil && !c.leaving {
			unknown = append(unknown, c)
		}
	}
	v.mu.Unlock()
	settled := true
	for _, c := range unknown {
		found, err := v.volumesOf(ctx, c.pod)
		if err != nil {
			settled = false
			continue // a claim that is not bound yet
		}
		v.mu.Lock()
		c.volumes = []corev1.UniqueVolumeName{}
		for name, driver := range found {
			c.volumes = append(c.volumes, name)
			if v.volumes[name] == nil {
				v.volumes[name] = &volume{csiDriver: driver}
			}
		}
		v.mu.Unlock()
	}
	return settled
}

// volumesOf are the volumes of CSI drivers behind a pod's claims, with their drivers.
func (v *volumes) volumesOf(ctx context.Context, pod *corev1.Pod) (map[corev1.UniqueVolumeName]csiDriver, error) {
	out := map[corev1.UniqueVolumeName]csiDriver{}
	for _, name := range claimsOf(pod) {
		pvc, err := v.cfg.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if pvc.Status.Phase != corev1.ClaimBound {
			return nil, fmt.Errorf("claim %s is not bound", name)
		}
		pv, err := v.cfg.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if csi := pv.Spec.CSI; csi != nil {
			driver, err := v.driver(ctx, csi.Driver)
			if err != nil {
				return nil, err
			}
			out[corev1.UniqueVolumeName("kubernetes.io/csi/"+csi.Driver+"^"+csi.VolumeHandle)] = driver
		}
	}
	return out, nil
}

// wanted are the volumes of pods that have not finished. The lock must be held.
func (v *volumes) wanted() map[corev1.UniqueVolumeName]bool {
	out := map[corev1.UniqueVolumeName]bool{}
	for _, c := range v.pods {
		if !c.leaving {
			for _, name := range c.volumes {
				out[name] = true
			}
		}
	}
	return out
}

// report writes the volumes in use to the node's status.
func (v *volumes) report(ctx context.Context) error {
	v.mu.Lock()
	inUse := v.wanted()
	for name, volume := range v.volumes {
		if volume.mounted {
			inUse[name] = true
		} else if !inUse[name] {
			delete(v.volumes, name)
		}
		if !volume.attached {
			delete(inUse, name)
		}
	}
	v.mu.Unlock()
	names := slices.Sorted(maps.Keys(inUse))
	if slices.Equal(names, v.reported) {
		return nil
	}
	if names == nil {
		names = []corev1.UniqueVolumeName{}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": names}})
	if err != nil {
		return err
	}
	_, err = v.cfg.Client.CoreV1().Nodes().Patch(ctx, v.cfg.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		err = nil // there is no Node any more to state it of
	}
	if err == nil {
		v.reported = names
	}
	return err
}

// unmount unmounts the volumes that no pod wants, which takes a while, and their drivers all that time.
func (v *volumes) unmount() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	wanted, settled, now := v.wanted(), true, time.Now()
	for name, volume := range v.volumes {
		switch {
		case !volume.mounted:
		case wanted[name]:
			volume.idle = time.Time{}
		case volume.idle.IsZero() || !v.served(volume):
			volume.idle, settled = now, false
		case now.Sub(volume.idle) < v.cfg.Timing.Unmount:
			settled = false
		default:
			volume.mounted = false
		}
	}
	return settled
}

// mount mounts the volumes that are attached. It returns the pods with volumes that now all are, and whether none is
// waiting.
func (v *volumes) mount(ctx context.Context) (ready []types.UID, settled bool, err error) {
	v.mu.Lock()
	missing := false
	for name := range v.wanted() {
		missing = missing || !v.volumes[name].mounted
	}
	v.mu.Unlock()
	attached := map[corev1.UniqueVolumeName]bool{}
	if missing {
		node, err := v.cfg.Client.CoreV1().Nodes().Get(ctx, v.cfg.Name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, false, err
		}
		for _, a := range node.Status.VolumesAttached {
			attached[a.Name] = true
		}
	}
	settled = true
	v.mu.Lock()
	defer v.mu.Unlock()
	for uid, c := range v.pods {
		if c.volumes == nil || c.ready || c.leaving {
			continue
		}
		all := true
		for _, name := range c.volumes {
			volume := v.volumes[name]
			volume.mounted = volume.mounted || (attached[name] || !volume.attached) && v.served(volume)
			all = all && volume.mounted
		}
		if c.ready = all; all {
			ready = append(ready, uid)
		}
		settled = settled && all
	}
	return ready, settled, nil
}

// register keeps the node's CSINode in step with the drivers with daemons that run.
func (v *volumes) register(ctx context.Context) error {
	v.mu.Lock()
	var drivers []string
	for name, pods := range v.plugins {
		if len(pods) > 0 {
			drivers = append(drivers, name)
		}
	}
	slices.Sort(drivers)
	state := v.withLimits(drivers)
	v.mu.Unlock()
	if slices.Equal(state, v.registered) {
		return nil
	}
	node, err := v.cfg.Client.CoreV1().Nodes().Get(ctx, v.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := v.labelZone(ctx, node, drivers); err != nil {
		return err
	}
	want := v.csiNode(node, drivers)
	have, err := v.cfg.Client.StorageV1().CSINodes().Get(ctx, v.cfg.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = v.cfg.Client.StorageV1().CSINodes().Create(ctx, want, metav1.CreateOptions{})
	case err == nil:
		have.Spec = want.Spec
		_, err = v.cfg.Client.StorageV1().CSINodes().Update(ctx, have, metav1.UpdateOptions{})
	}
	if err == nil {
		v.registered = state
	}
	return err
}

// labelZone gives the node the topology labels of its drivers.
func (v *volumes) labelZone(ctx context.Context, node *corev1.Node, drivers []string) error {
	labels := map[string]string{}
	for _, d := range drivers {
		if key := zoneKey(d); d == ebsDriver && node.Labels[key] == "" {
			labels[key] = v.zone()
		}
	}
	if len(labels) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	_, err = v.cfg.Client.CoreV1().Nodes().Patch(ctx, v.cfg.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (v *volumes) csiNode(node *corev1.Node, drivers []string) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: v.cfg.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range drivers {
		of := storagev1.CSINodeDriver{Name: d, NodeID: v.cfg.ProviderID[strings.LastIndexByte(v.cfg.ProviderID, '/')+1:]}
		if d == ebsDriver {
			of.TopologyKeys = []string{corev1.LabelTopologyZone, zoneKey(d)}
		}
		if limit := v.limits[d]; limit != nil {
			of.Allocatable = &storagev1.VolumeNodeResources{Count: limit}
		}
		out.Spec.Drivers = append(out.Spec.Drivers, of)
	}
	return out
}

func zoneKey(driver string) string { return "topology." + driver + "/zone" }

// zone returns the instance's zone from its provider ID (aws:///ZONE/ID).
func (v *volumes) zone() string {
	parts := strings.Split(v.cfg.ProviderID, "/")
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}
