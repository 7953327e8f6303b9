"""PyTorch: releases, wheels, build options, patches, community builds."""
