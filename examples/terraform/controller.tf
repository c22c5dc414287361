# Who the controller is: a role that EKS Pod Identity gives to its ServiceAccount.

resource "aws_iam_role" "controller" {
  name = "KarpenterControllerRole-${var.cluster_name}"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "pods.eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
    }]
  })
}

# Its UID identifies the cluster: the policy lets the controller terminate only instances with this tag.
data "kubernetes_namespace_v1" "kube_system" {
  metadata {
    name = "kube-system"
  }
}

resource "aws_iam_role_policy" "controller" {
  name = "dovetail"
  role = aws_iam_role.controller.name
  # The output of: dovetail iam-policy
  policy = templatefile("${path.module}/policy.json.tftpl", {
    partition    = data.aws_partition.this.partition
    account      = data.aws_caller_identity.this.account_id
    region       = var.region
    cluster_name = aws_eks_cluster.this.name
    identity     = data.kubernetes_namespace_v1.kube_system.metadata[0].uid
    queue        = aws_sqs_queue.interruption.name
    node_role    = aws_iam_role.node.name
  })
}

resource "aws_eks_pod_identity_association" "controller" {
  cluster_name    = aws_eks_cluster.this.name
  namespace       = "kube-system"
  service_account = "dovetail"
  role_arn        = aws_iam_role.controller.arn
}

resource "helm_release" "crds" {
  name      = "dovetail-crd"
  namespace = "kube-system"
  chart     = "${var.chart_directory}/dovetail-crd"
}

resource "helm_release" "dovetail" {
  name      = "dovetail"
  namespace = "kube-system"
  chart     = "${var.chart_directory}/dovetail"
  skip_crds = true
  values = [yamlencode(merge(
    {
      settings = {
        clusterName       = aws_eks_cluster.this.name
        interruptionQueue = aws_sqs_queue.interruption.name
      }
    },
    { for repository in compact([var.image_repository]) : "controller" => { image = { repository = repository } } },
  ))]
  # All of these exist while the controller runs: they are created before it and destroyed after it.
  depends_on = [
    helm_release.crds,
    aws_eks_node_group.system,
    aws_eks_addon.coredns,
    aws_eks_pod_identity_association.controller,
    aws_iam_role_policy.controller,
    aws_sqs_queue_policy.interruption,
    aws_cloudwatch_event_target.interruption,
    aws_ec2_tag.subnet_discovery,
    aws_ec2_tag.security_group_discovery,
  ]
}
