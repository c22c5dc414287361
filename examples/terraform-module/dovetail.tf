# Dovetail in a cluster of the module terraform-aws-modules/eks/aws. Its submodule for Karpenter creates the controller's role, the Pod
# Identity association, the nodes' role with its access entry, the queue and the rules. Copy the directory into the configuration of the
# cluster, which has the providers aws, kubernetes and helm:
#   module "dovetail" {
#     source       = "./dovetail"
#     cluster_name = module.eks.cluster_name
#   }

locals {
  node_role = "KarpenterNodeRole-${var.cluster_name}"
}

module "karpenter" {
  source  = "terraform-aws-modules/eks/aws//modules/karpenter"
  version = "~> 21.0"

  cluster_name    = var.cluster_name
  namespace       = "kube-system"
  service_account = "dovetail" # that of the chart

  # EC2NodeClasses name it: without a suffix.
  node_iam_role_name            = local.node_role
  node_iam_role_use_name_prefix = false

  iam_role_policies = { dovetail = aws_iam_policy.dovetail.arn }
}

# Its UID identifies the cluster: Dovetail marks what it launches with it.
data "kubernetes_namespace_v1" "kube_system" {
  metadata {
    name = "kube-system"
  }
}

# What Dovetail needs and the policy of the module does not have.
resource "aws_iam_policy" "dovetail" {
  name = "Dovetail-${var.cluster_name}"
  policy = templatefile("${path.module}/policy.json.tftpl", {
    partition    = data.aws_partition.this.partition
    account      = data.aws_caller_identity.this.account_id
    region       = data.aws_region.this.region
    cluster_name = var.cluster_name
    identity     = data.kubernetes_namespace_v1.kube_system.metadata[0].uid
    node_role    = local.node_role
  })
}

resource "helm_release" "crds" {
  name       = "dovetail-crd"
  namespace  = "kube-system"
  repository = "oci://ghcr.io/dovetail-k8s/dovetail/charts"
  chart      = "dovetail-crd"
  version    = "0.1.0"
}

resource "helm_release" "dovetail" {
  name       = "dovetail"
  namespace  = "kube-system"
  repository = "oci://ghcr.io/dovetail-k8s/dovetail/charts"
  chart      = "dovetail"
  version    = "0.1.0"
  skip_crds  = true
  values = [yamlencode({
    settings = {
      clusterName       = var.cluster_name
      interruptionQueue = module.karpenter.queue_name
    }
  })]
  depends_on = [helm_release.crds, module.karpenter]
}
