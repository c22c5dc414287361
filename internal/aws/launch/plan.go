package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// plan describes what a launch is going to request.
type plan struct {
	requirements requirement.Set
	capacityType string
	tenancy      string
	candidates   []candidate
	// placement states where in the class's placement group to launch.
	placement cloudprovider.Placement
	// choice has the subnet of each zone in which a candidate has an offering.
	choice *network.Choice
}

func (l *Launcher) plan(o Request) (plan, error) {
	reqs, err := Requirements(o.Claim)
	if err != nil {
		return plan{}, createError(err)
	}
	if len(o.Class.Status.Subnets) == 0 {
		return plan{}, &cloudprovider.CreateError{Reason: "SubnetResolutionFailed", Message: "the node class has no subnets"}
	}
	found, err := candidates(o.Types, reqs, o.Claim.Spec.Resources.Requests, l.cfg.StrictMinValues)
	if err != nil {
		return plan{}, &cloudprovider.InsufficientCapacityError{Err: err}
	}
	p := plan{
		requirements: reqs,
		capacityType: capacityType(found, reqs),
		tenancy:      tenancy(reqs),
		candidates:   found,
		placement:    o.placement(reqs, found),
	}
	subnets := make([]network.Subnet, len(o.Class.Status.Subnets))
	for i, s := range o.Class.Status.Subnets {
		subnets[i] = network.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID}
	}
	p.choice = l.cfg.Addresses.Choose(subnets, p.need())
	return p, nil
}

// need returns the minimum number of addresses that the launch uses, by zone: those of the smallest type.
func (p plan) need() map[string]int {
	need := map[string]int{}
	for _, c := range p.candidates {
		pods := int(c.Capacity.Pods().Value())
		for _, offering := range c.offerings {
			if offering.CapacityType != p.capacityType {
				continue
			}
			if n, ok := need[offering.Zone]; !ok || pods < n {
				need[offering.Zone] = pods
			}
		}
	}
	return need
}

// templateGroup identifies the instance types that share a launch template.
type templateGroup struct {
	image   string
	efas    int
	maxPods int64
	// kubelet is the kubelet's settings if they depend on the type; else it is empty and those of the class apply.
	kubelet string
	// reservation is the reservation of the launch, zero for none.
	reservation cloudprovider.Reservation
}

// maxConcurrentTemplates limits how many launch templates one launch ensures at a time. Few launches need more, and each
// template takes two calls of a throttled API.
const maxConcurrentTemplates = 4

// fleet ensures the launch templates and builds the request.
func (l *Launcher) fleet(ctx context.Context, o Request, p plan) (fleet, error) {
	f := fleet{
		capacityType: p.capacityType,
		tags:         l.sharedTags(o),
		zones:        zonesOf(o.Class),
		placement:    p.placement,
		context:      o.Class.Spec.Context,
		overlaid:     o.Claim.Annotations[karpv1.AnnotationPriceOverlayApplied] == "true" || p.overlaid(),
	}
	if o.Claim.Annotations[karpv1.AnnotationMinValuesRelaxed] == "true" {
		f.context = ""
	}
	order, overrides, err := p.overrides(o)
	if err != nil {
		return fleet{}, err
	}
	f.reservations = map[catalog.OfferingKey]cloudprovider.Reservation{}
	for _, g := range order {
		for _, override := range overrides[g] {
			if g.reservation.ID != "" {
				f.reservations[reservedKey(string(override.InstanceType), aws.ToString(override.AvailabilityZone))] = g.reservation
				f.sample = g.reservation
			}
		}
	}
	f.configs = make([]ec2types.FleetLaunchTemplateConfigRequest, len(order))
	templates, ctx := errgroup.WithContext(ctx)
	templates.SetLimit(maxConcurrentTemplates)
	for i, g := range order {
		templates.Go(func() error {
			name, err := l.template(ctx, o, p, g)
			f.configs[i] = ec2types.FleetLaunchTemplateConfigRequest{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
					LaunchTemplateName: aws.String(name),
					Version:            aws.String("$Latest"),
				},
				Overrides: overrides[g],
			}
			return err
		})
	}
	if err := templates.Wait(); err != nil {
		return fleet{}, err
	}
	return f, nil
}

// zonesOf returns the IDs of the zones in which a class has subnets, by name.
func zonesOf(class *awsv1.EC2NodeClass) map[string]string {
	ids := map[string]string{}
	for _, s := range class.Status.Subnets {
		ids[s.Zone] = s.ZoneID
	}
	return ids
}

// overlaid reports whether a NodeOverlay has set the price of a candidate. NodeClaims of static pools name no types and
// have no annotation, so the candidates decide.
func (p plan) overlaid() bool {
	return slices.ContainsFunc(p.candidates, func(c candidate) bool { return c.PriceOverlaid() })
}

// maxOverrides is EC2's limit for the overrides of one fleet.
const maxOverrides = 300

// overrideKey identifies an override of a fleet.
type overrideKey struct {
	catalog.OfferingKey
	reservationID string
}

// overrides returns the overrides by template group; groups in the order of their cheapest type. Beyond EC2's limit,
// the offerings of the most expensive types are left out.
func (p plan) overrides(o Request) ([]templateGroup, map[templateGroup][]ec2types.FleetLaunchTemplateOverridesRequest, error) {
	images, err := imagesOf(o.Class)
	if err != nil {
		return nil, nil, createError(err)
	}
	var order []templateGroup
	total := 0
	overrides := map[templateGroup][]ec2types.FleetLaunchTemplateOverridesRequest{}
	listed := map[overrideKey]bool{} // an offering is listed once for each partition of a placement group
	for _, c := range p.candidates {
		imageID, ok := images.firstFor(c.InstanceType)
		if !ok {
			continue
		}
		kubelet, err := o.kubelet(c.Name)
		if err != nil {
			return nil, nil, createError(err)
		}
		g := templateGroup{image: imageID, maxPods: c.Capacity.Pods().Value(), kubelet: kubelet}
		if requestsEFA(o.Claim) {
			g.efas = EFAs(o.Claim, o.Class, c.Capacity)
		}
		for _, offering := range c.offerings {
			subnet, ok := p.choice.Subnets[offering.Zone]
			from := overrideKey{offering.Key(c.Name), offering.ReservationID}
			if !ok || offering.CapacityType != p.capacityType || total == maxOverrides || listed[from] || !p.suits(&offering) {
				continue
			}
			total++
			listed[from] = true
			g.reservation = reservationOf(&offering)
			if _, seen := overrides[g]; !seen {
				order = append(order, g)
			}
			overrides[g] = append(overrides[g], ec2types.FleetLaunchTemplateOverridesRequest{
				InstanceType:     ec2types.InstanceType(c.Name),
				SubnetId:         aws.String(subnet),
				ImageId:          aws.String(imageID),
				AvailabilityZone: aws.String(offering.Zone),
				Priority:         aws.Float64(offering.Price),
			})
		}
	}
	if len(order) == 0 {
		return nil, nil, createError(errors.New("no offering has both a compatible image and a subnet in its zone"))
	}
	return order, overrides, nil
}

// imageRequirements is an image of the node class with its parsed requirements.
type imageRequirements struct {
	id           string
	requirements requirement.Set
}

type classImages []imageRequirements

func imagesOf(class *awsv1.EC2NodeClass) (classImages, error) {
	var out classImages
	for _, ami := range class.Status.AMIs {
		reqs := make([]requirement.Requirement, 0, len(ami.Requirements))
		for _, r := range ami.Requirements {
			parsed, err := requirement.New(r.Key, corev1.NodeSelectorOperator(r.Operator), r.Values...)
			if err != nil {
				return nil, fmt.Errorf("requirements of image %s: %w", ami.ID, err)
			}
			reqs = append(reqs, parsed)
		}
		out = append(out, imageRequirements{ami.ID, requirement.NewSet(reqs...)})
	}
	return out, nil
}

// firstFor returns the first image that an instance type can boot.
func (s classImages) firstFor(t *catalog.InstanceType) (string, bool) {
	i := slices.IndexFunc(s, func(i imageRequirements) bool { return i.requirements.Overlaps(t.Requirements) })
	if i < 0 {
		return "", false
	}
	return s[i].id, true
}

// template ensures the launch template of a group and returns its name.
func (l *Launcher) template(ctx context.Context, o Request, p plan, g templateGroup) (string, error) {
	cluster := l.cfg.Cluster()
	userData, err := l.userData(o, p, g, cluster)
	if err != nil {
		return "", err
	}
	l.recordUserDataSize(o.Class.Name, len(userData))
	in, err := Template(TemplateSpec{
		Class:            o.Class,
		ImageID:          g.image,
		UserData:         userData,
		CapacityType:     p.capacityType,
		Tenancy:          p.tenancy,
		Placement:        p.placement,
		Reservation:      g.reservation,
		EFAs:             g.efas,
		IPv6:             cluster.IPv6(),
		Region:           l.cfg.Identity.Region,
		Tags:             l.sharedTags(o),
		ReservedCapacity: l.cfg.Reservations != nil,
	})
	if err != nil {
		return "", createError(err)
	}
	name, err := l.cfg.Templates.Ensure(ctx, in)
	if err != nil {
		return "", createError(err)
	}
	return name, nil
}

// maxUserData is EC2's limit in bytes. From largeUserData on, 90 % of the limit, a warning is logged: labels and taints
// of the next NodePool may need the rest.
const (
	maxUserData   = 16384
	largeUserData = maxUserData * 9 / 10
)

func (l *Launcher) recordUserDataSize(nodeClass string, bytes int) {
	l.cfg.Meter.UserData(nodeClass, bytes)
	if _, warned := l.largeUserData.Get(nodeClass); bytes >= largeUserData && !warned {
		l.largeUserData.Set(nodeClass, struct{}{})
		l.cfg.Log.Warn("user data is close to the limit of EC2, or exceeds it", "nodeClass", nodeClass, "bytes", bytes, "limit", maxUserData)
	}
}

func (l *Launcher) userData(o Request, p plan, g templateGroup, cluster bootstrap.Cluster) (string, error) {
	class := o.Class
	if g.kubelet != "" {
		class = class.DeepCopy()
		class.Spec.Kubelet.Raw = []byte(g.kubelet)
	}
	kubelet, err := class.KubeletConfiguration()
	if err != nil {
		return "", createError(err)
	}
	family := image.Family(o.Class)
	in := bootstrap.Input{
		Cluster:               cluster,
		Labels:                nodeLabels(o.Claim, p, g.reservation, family),
		Taints:                bootstrap.NodeTaints(o.Claim.Spec.Taints, o.Claim.Spec.StartupTaints),
		Kubelet:               kubelet,
		MaxPods:               g.maxPods,
		UserData:              o.Class.Spec.UserData,
		RAID0:                 o.Class.Spec.InstanceStorePolicy == awsv1.InstanceStoreRAID0,
		BottlerocketBindsDirs: bootstrap.BottlerocketBindsDirs(image.BottlerocketVersion(o.Class)),
	}
	if class.Spec.Kubelet != nil {
		in.RawKubelet = class.Spec.Kubelet.Raw
	}
	rendered, err := l.userDatas.Render(family, in)
	if errors.As(err, &bootstrap.MissingCIDRError{}) { // EKS has not answered since the start: other claims would fare no better
		return "", fmt.Errorf("%w: eks-cluster (%w, and AL2023 needs it)", cloudprovider.ErrNotKnownYet, err)
	}
	if refused := (*bootstrap.NotEncodableError)(nil); errors.As(err, &refused) {
		return "", &cloudprovider.CreateError{Reason: "UserDataNotEncodable", Message: refused.Error(), Err: err}
	}
	if err != nil {
		return "", createError(err)
	}
	if len(rendered.Dropped) > 0 {
		l.cfg.Log.Warn("unknown settings in spec.userData are ignored", "nodeClass", o.Class.Name, "settings", rendered.Dropped)
	}
	return rendered.Text, nil
}

// nodeLabels returns the labels that the node registers with: the labels of the NodeClaim, requirements with a single
// value, the capacity type, and the reservation.
func nodeLabels(claim *karpv1.NodeClaim, p plan, r cloudprovider.Reservation, family string) map[string]string {
	labels := map[string]string{}
	for _, r := range p.requirements.All() {
		if value, ok := r.Single(); ok {
			labels[r.Key()] = value
		}
	}
	for key, value := range claim.Labels {
		labels[key] = value
	}
	labels[karpv1.LabelCapacityType] = p.capacityType
	if r.ID != "" {
		labels[awsv1.LabelReservationID] = r.ID
		labels[awsv1.LabelReservationType] = r.Type
		labels[awsv1.LabelReservationInterruptible] = strconv.FormatBool(r.Interruptible)
	}
	if family != awsv1.AMIFamilyCustom {
		labels[karpv1.LabelDoNotSyncTaints] = "true"
	}
	return bootstrap.NodeLabels(labels)
}
